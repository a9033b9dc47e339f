"""`ale env new`: a folder with a small complete task in it, to be changed file by file.

It copies what lies in `ale/scaffold`, and overwrites nothing.
"""

from __future__ import annotations

from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

from ale.terminal import stdout
from rock_env.errors import InvalidArgument

__all__ = ["new_command"]


def new_command(folder: Path) -> None:
    """Write the folder and say how to go on. Raise `InvalidArgument` where there is something already."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InvalidArgument(f"{folder} exists and is not empty. Name a new folder.")
    try:
        _copy(resources.files("ale") / "scaffold", folder)
    except OSError as error:
        raise InvalidArgument(
            f"cannot write {folder}: {error.strerror}. Name a folder in a place of yours."
        ) from error
    stdout().print(
        f"{folder} holds a task that works. Read {folder / 'README.md'}, then:\n  ale env register {folder}"
    )


def _copy(source: Traversable, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    for entry in source.iterdir():
        place = target / entry.name
        if entry.is_dir():
            _copy(entry, place)
        else:
            place.write_bytes(entry.read_bytes())
            if place.suffix == ".sh":
                place.chmod(0o755)
