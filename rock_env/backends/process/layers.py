"""The layers of process boxes on disk: frozen file systems, each upon those its box was started from.

Used by `backends/process/backend`. It keeps books and folders; copying the files is the zygote's work. A layer appears under
its name when it is whole, by renaming, and never changes again.
"""

from __future__ import annotations

import itertools
import json
import os
import secrets
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from rock_env.errors import FailedPrecondition, InvalidArgument, NotFound

__all__ = ["MAX_LINEAGE", "Layer", "ProcessLayers", "remove_tree"]

MAX_LINEAGE = 32
"""Layers on top of each other; a snapshot of a box that has so many copies all it sees, as a layer without parents."""
_PART = ".part"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Layer:
    """One frozen file system."""

    lineage: tuple[str, ...]
    """Ids of the layers to stack, from this one at the top to the oldest."""
    identity: int
    """The host uid that owns the files. Boxes that start from the layer run as it."""
    whole: bool
    """Made without an overlay: a copy of all there was, with no marks of what was removed."""
    bytes: int


class ProcessLayers:
    """All layers below one folder, which other servers may add to and take from."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._known: dict[str, Layer] = {}

    def load(self, *, clean: bool = True) -> None:
        """Read what is there; with `clean`, remove what a killed server left half done."""
        self.folder.mkdir(mode=0o700, exist_ok=True)
        for entry in sorted(self.folder.iterdir()):
            if not entry.name.endswith(_PART):
                self._read(entry.name)
            elif clean:
                remove_tree(entry)

    def names(self) -> set[str]:
        there = {it.name for it in self.folder.iterdir() if not it.name.endswith(_PART)}
        for name in there - self._known.keys():
            self._read(name)
        for name in self._known.keys() - there:
            del self._known[name]
        return set(self._known)

    def _read(self, name: str) -> None:
        try:
            fields = json.loads((self.folder / name / "layer.json").read_text())
        except FileNotFoundError:  # another server has just removed it
            return
        self._known[name] = Layer(**{**fields, "lineage": tuple(fields["lineage"])})

    def get(self, name: str) -> Layer:
        """Return a layer. Raise `NotFound`."""
        if name not in self._known and "/" not in name:
            self._read(name)
        try:
            return self._known[name]
        except KeyError:
            raise NotFound(f"there is no snapshot {name!r} on this node") from None

    def files(self, name: str) -> Path:
        """Return the folder of a layer's files."""
        return self.folder / name / "files"

    def begin(self, name: str) -> Path:
        """Make the folder that becomes the layer's files. Raise `InvalidArgument` if the name is taken."""
        part = self.folder / f"{name}{_PART}"
        if name in self._known or part.exists():
            raise InvalidArgument(f"a snapshot {name!r} exists already")
        files = part / "files"
        files.mkdir(parents=True, mode=0o755)
        return files

    def commit(self, name: str, layer: Layer) -> None:
        """Let the layer begun under `name` appear."""
        part = self.folder / f"{name}{_PART}"
        (part / "layer.json").write_text(json.dumps(asdict(layer)))
        part.rename(self.folder / name)
        self._known[name] = layer

    def discard(self, name: str) -> None:
        """Remove what `begin` made."""
        remove_tree(self.folder / f"{name}{_PART}")

    def forget(self, name: str, *, boxes: dict[str, tuple[str, ...]]) -> Path | None:
        """Take a layer off the books and return what is to be removed. Raise `FailedPrecondition` while it is used."""
        if name not in self.names():
            return None
        users = [f"sandbox {box!r}" for box, lineage in boxes.items() if name in lineage]
        users += [
            f"snapshot {top!r}" for top, layer in self._known.items() if name in layer.lineage and top != name
        ]
        if users:
            raise FailedPrecondition(
                f"snapshot {name!r} is used by {', '.join(sorted(users)[:3])}"
                f"{' and others' if len(users) > 3 else ''}; delete them first"
            )
        del self._known[name]
        part = self.folder / f"{name}{_PART}"
        (self.folder / name).rename(part)
        return part


def remove_tree(folder: Path) -> None:
    """Delete a folder with all below it, also where the files' owner took away permissions, and however deep it is.

    Nothing there: nothing.
    """
    try:
        shutil.rmtree(folder)
    except FileNotFoundError:
        return
    except (OSError, RecursionError):
        _take_apart(folder)


def _take_apart(folder: Path) -> None:
    """Delete a folder by moving each folder below it up to its own level first: no path grows and nothing recurses."""
    folder.chmod(0o700)
    top = os.open(folder, _FOLDER)
    mark, numbers = f".{secrets.token_hex(8)}", itertools.count()
    try:
        waiting = _emptied(top, top, lambda: f"{mark}-{next(numbers)}")
        while waiting:
            name = waiting.pop()
            os.chmod(name, 0o700, dir_fd=top)
            inner = os.open(name, _FOLDER, dir_fd=top)
            try:
                waiting += _emptied(inner, top, lambda: f"{mark}-{next(numbers)}")
            finally:
                os.close(inner)
            os.rmdir(name, dir_fd=top)
    finally:
        os.close(top)
    folder.rmdir()


def _emptied(inner: int, top: int, new_name: Callable[[], str]) -> list[str]:
    """Delete a folder's files, move its folders to `top`, and return their names there."""
    moved = []
    with os.scandir(inner) as found:
        entries = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in found]
    for name, is_folder in entries:
        if not is_folder:
            os.unlink(name, dir_fd=inner)
            continue
        os.chmod(name, 0o700, dir_fd=inner)  # who may not write in a folder may not move it either
        moved.append(new_name())
        os.rename(name, moved[-1], src_dir_fd=inner, dst_dir_fd=top)
    return moved
