"""A build context as it arrives: a tar spooled to disk at flat memory, checked, and named by its content.

Used by the registry. It unpacks nothing: the engine does, inside its own fence. The digest covers what a build can see
(paths, kinds, permissions, links, contents, which Dockerfile, the arguments) and not what it cannot or should
not (times, owners, order), so the same folder has one digest on every machine.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import tarfile
import tempfile
from collections.abc import AsyncIterator, Mapping
from pathlib import Path, PurePosixPath
from typing import BinaryIO, Self

from rock_env.errors import InvalidArgument, ResourceExhausted

__all__ = ["MAX_CONTEXT_BYTES", "BuildContext"]

MAX_CONTEXT_BYTES = 4 << 30
"""Default limit of a context. A larger one is nearly always a forgotten .dockerignore."""
_MAX_FILES = 200_000
_BLOCK_BYTES = 1 << 20
_KINDS = {tarfile.REGTYPE: "file", tarfile.AREGTYPE: "file", tarfile.DIRTYPE: "folder"} | {
    tarfile.SYMTYPE: "symlink",
    tarfile.LNKTYPE: "link",
}


class BuildContext:
    """One context on disk, in a file without a name: it is gone when it is closed, or when the server dies."""

    def __init__(self, file: BinaryIO, max_bytes: int) -> None:
        self._file = file
        self._max_bytes = max_bytes
        self.bytes = 0
        self.digest = ""
        """Set by `seal`."""

    @classmethod
    async def open(cls, folder: Path | None = None, *, max_bytes: int = MAX_CONTEXT_BYTES) -> Self:
        """Make room for a context. Raise `ResourceExhausted` where there is none."""
        try:
            return cls(await asyncio.to_thread(tempfile.TemporaryFile, dir=folder), max_bytes)
        except OSError as error:
            raise ResourceExhausted(
                f"no place for a build context: {error.strerror}. Free some disk."
            ) from error

    def close(self) -> None:
        """Let go of it. Safe to call twice."""
        self._file.close()

    async def write(self, data: bytes) -> None:
        """Append a piece of the tar. Raise `InvalidArgument` beyond the limit."""
        self.bytes += len(data)
        if self.bytes > self._max_bytes:
            raise InvalidArgument(
                f"the build context is larger than {self._max_bytes} bytes. List what the build does not need in "
                ".dockerignore, or have the server's limit raised."
            )
        try:
            await asyncio.to_thread(self._file.write, data)
        except OSError as error:
            raise ResourceExhausted(
                f"no place for a build context of {self.bytes} bytes: {error.strerror}. Free some disk."
            ) from error

    async def seal(self, *, dockerfile: str, build_args: Mapping[str, str]) -> str:
        """Check what has arrived and return its digest. Raise `InvalidArgument` for what no build could use."""
        self.digest = await asyncio.to_thread(_digest, self._file, dockerfile, dict(build_args))
        return self.digest

    async def blocks(self) -> AsyncIterator[bytes]:
        """Yield the tar in blocks."""
        await asyncio.to_thread(self._file.seek, 0)
        while block := await asyncio.to_thread(self._file.read, _BLOCK_BYTES):
            yield block


def _digest(file: BinaryIO, dockerfile: str, build_args: dict[str, str]) -> str:
    file.flush()
    file.seek(0)
    entries: dict[str, list[object]] = {}
    try:
        with tarfile.open(fileobj=file, mode="r:") as tar:
            for member in tar:
                entries[_path(member.name, "path")] = _entry(tar, member)
                if len(entries) > _MAX_FILES:
                    raise InvalidArgument(
                        f"the build context has more than {_MAX_FILES} files; use .dockerignore."
                    )
    except (tarfile.TarError, UnicodeError, OverflowError) as error:
        raise InvalidArgument(f"the build context is not a complete, uncompressed tar: {error}.") from error
    _check_dockerfile(entries, dockerfile)
    shape = [dockerfile, sorted(build_args.items()), sorted(entries.items())]
    return "sha256:" + hashlib.sha256(json.dumps(shape, separators=(",", ":")).encode()).hexdigest()


def _entry(tar: tarfile.TarFile, member: tarfile.TarInfo) -> list[object]:
    kind = _KINDS.get(member.type)
    if kind is None:
        raise InvalidArgument(
            f"the build context holds {member.name!r}, which is no file, folder or link. List it in .dockerignore."
        )
    if kind == "link":
        _path(member.linkname, "link target")
    content = ""
    if kind == "file":
        source = tar.extractfile(member)
        assert source is not None  # it is a file
        content = hashlib.file_digest(source, "sha256").hexdigest()  # type: ignore[arg-type]  # IO has readinto
    linked = member.linkname if kind in ("symlink", "link") else ""
    # Links have no permissions of their own; what a file system says of them differs between machines.
    return [kind, 0 if kind == "symlink" else member.mode & 0o777, linked, content]


def _path(name: str, what: str) -> str:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\0" in name:
        raise InvalidArgument(f"the build context holds the {what} {name!r}, which leads out of it.")
    name.encode()  # raises UnicodeEncodeError for what is not UTF-8: JSON could not carry it
    return str(path)


def _check_dockerfile(entries: Mapping[str, list[object]], dockerfile: str) -> None:
    path = _path(dockerfile, "Dockerfile path")
    if path not in entries or entries[path][0] == "folder":
        top = sorted(name for name in entries if "/" not in name and name != ".")[:20]
        raise InvalidArgument(
            f"the build context has no {dockerfile!r}; at its top it has: {', '.join(top) or 'nothing'}. Name the "
            "Dockerfile, by its path within the folder, or register the folder that holds it."
        )
