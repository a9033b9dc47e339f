"""A folder as the builder wants it: one tar, without what its .dockerignore names.

Used by the registry's client. The patterns are matched by the Docker SDK, so that they mean here what they mean to
`docker build`. It reads the folder and writes one temporary file; memory stays flat.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import BinaryIO

from docker.utils.build import create_archive, exclude_paths  # type: ignore[import-untyped]

from rock_env.errors import InvalidArgument
from rock_env.foreign.files import check_regular
from rock_env.foreign.folder import read_inside

__all__ = ["packed"]


def packed(folder: Path, *, dockerfile: str = "Dockerfile") -> BinaryIO:
    """Return an open temporary file with the folder's tar. Raise `InvalidArgument` for a folder that cannot be built."""
    if not folder.is_dir():
        raise InvalidArgument(f"{folder} is no folder. Name the folder that holds the Dockerfile.")
    if not (folder / dockerfile).is_file():
        raise InvalidArgument(
            f"{folder} has no {dockerfile}. Name the folder that holds the Dockerfile, or the Dockerfile's path in it."
        )
    archive = tempfile.TemporaryFile()  # noqa: SIM115 - the caller's to close
    try:
        files = sorted(exclude_paths(str(folder), _patterns(folder), dockerfile=dockerfile))
        for name in files:
            if not (path := folder / name).is_dir() and not path.is_symlink():
                check_regular(path.stat().st_mode, path)
        create_archive(str(folder), files=files, fileobj=archive)
    except OSError as error:
        archive.close()
        raise InvalidArgument(f"cannot read the folder {folder}: {error}.") from error
    except BaseException:
        archive.close()
        raise
    return archive


def _patterns(folder: Path) -> list[str]:
    ignore = folder / ".dockerignore"
    if not ignore.is_file():
        return []
    lines = (line.strip() for line in read_inside(folder, ignore).decode().splitlines())
    return [line for line in lines if line and not line.startswith("#")]
