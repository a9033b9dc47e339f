"""Give a running, unused container the files of a snapshot: what a fork costs when a clean box is in stock.

Used by the `docker` backend only, also for grades, which leave out what `take_over` refuses. A container's layers are fixed
when it is made, and making one takes the engine a tenth of a second of both cores; copying a small layer into one that runs
already takes milliseconds. Every step goes from an open folder to an entry of it and follows no link, so nothing in a box
can lead a copy out of it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rock_env.backends.process.trees import copy_file, copy_properties
from rock_env.errors import InfraError, UnfitFiles

__all__ = [
    "FOLDER",
    "GRAFT_BYTES",
    "MOST_DEEP",
    "Refusals",
    "graft",
    "is_opaque",
    "is_removal",
    "layers_above",
    "merged_folder",
]

GRAFT_BYTES = 32 << 20
"""Beyond this a new container upon the snapshot, which shares its layer, is about as fast and takes no disk."""
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
MOST_DEEP = 200
"""Folders within each other that are followed; each holds two descriptors open."""
_OPAQUE = "trusted.overlay.opaque"

Link = tuple[int, str]
"""An open folder and a name in it."""


@dataclass(slots=True)
class Refusals:
    """What of one layer is not applied. Paths are without the first slash."""

    refused: set[str] = field(default_factory=set)
    contents: dict[str, bytes] = field(default_factory=dict)
    """What files hold in place of their own content."""
    kept: set[str] = field(default_factory=set)
    """Folders that the layer replaces, and whose entries stay."""


def layers_above(image: dict[str, Any], below: dict[str, Any]) -> list[Path] | None:
    """Return where an image's layers above those of `below` lie, lowest first; None if it does not build upon it.

    Both as the engine describes images. Only for overlay2, whose layers are folders in the form of an overlay's upper one.
    """
    all_layers, base = image["RootFS"]["Layers"], below["RootFS"]["Layers"]
    driver = image["GraphDriver"]
    if driver["Name"] != "overlay2" or all_layers[: len(base)] != base:
        return None
    folders = [driver["Data"]["UpperDir"], *driver["Data"].get("LowerDir", "").split(":")]
    return [Path(folder) for folder in reversed(folders[: len(all_layers) - len(base)])]


def merged_folder(container: dict[str, Any]) -> Path | None:
    """Return where a running container's files can be written from this process; None if nowhere."""
    data = container["GraphDriver"].get("Data") or {}
    folder = data.get("MergedDir")
    if os.geteuid() != 0 or container["GraphDriver"]["Name"] != "overlay2" or not folder:
        return None
    return Path(folder) if os.path.ismount(folder) else None


def graft(layers: list[Path], target: Path, without: Sequence[Refusals] = ()) -> None:
    """Apply layers to a container's files, each without its refusals.

    Raise `InfraError`, or `UnfitFiles` for what is nested too deep; the container is then of no use.
    """
    try:
        for layer, refusals in zip(layers, without or [Refusals()] * len(layers), strict=True):
            grafting = _Grafting(refusals)
            source, into = os.open(layer, FOLDER), os.open(target, FOLDER)
            try:
                grafting.apply(source, into)
            finally:
                for fd in (source, into, *(folder for folder, _ in grafting.links.values())):
                    os.close(fd)
    except OSError as error:
        raise InfraError(f"a snapshot could not be copied into a sandbox: {error}") from error


class _Grafting:
    """One layer on its way into a container."""

    def __init__(self, refusals: Refusals) -> None:
        self.links: dict[tuple[int, int], Link] = {}
        self._without = refusals

    def apply(self, source: int, into: int, path: str = "", deep: int = 0) -> None:
        if deep > MOST_DEEP:
            raise UnfitFiles(f"a folder is nested deeper than {MOST_DEEP} folders")
        if is_opaque(source) and path not in self._without.kept:
            _clear(into)
        for name in os.listdir(source):
            own = f"{path}/{name}" if path else name
            if own in self._without.refused:
                continue
            info = os.stat(name, dir_fd=source, follow_symlinks=False)
            if stat.S_ISDIR(info.st_mode):
                self._folder(name, info, source, into, own, deep)
                continue
            _remove(into, name)
            if is_removal(info):
                continue
            known = self.links.get((info.st_dev, info.st_ino))
            if known is not None:
                os.link(known[1], name, src_dir_fd=known[0], dst_dir_fd=into, follow_symlinks=False)
                continue
            _copy(name, info, source, into)
            if own in self._without.contents:
                _rewrite(into, name, self._without.contents[own])
            if info.st_nlink > 1:
                self.links[info.st_dev, info.st_ino] = (os.dup(into), name)

    def _folder(self, name: str, info: os.stat_result, source: int, into: int, path: str, deep: int) -> None:
        inner = os.open(name, FOLDER, dir_fd=source)
        try:
            try:
                there = stat.S_ISDIR(os.stat(name, dir_fd=into, follow_symlinks=False).st_mode)
            except FileNotFoundError:
                there = False
            if not there:
                _remove(into, name)
                os.mkdir(name, 0o700, dir_fd=into)
            made = os.open(name, FOLDER, dir_fd=into)
            try:
                self.apply(inner, made, path, deep + 1)
                copy_properties(inner, made, info)
            finally:
                os.close(made)
        finally:
            os.close(inner)


def _rewrite(folder: int, name: str, content: bytes) -> None:
    fd = os.open(name, os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    with os.fdopen(fd, "wb") as file:
        file.write(content)


def _copy(name: str, info: os.stat_result, source: int, into: int) -> None:
    """Make a file, link, pipe or socket that is not there."""
    if stat.S_ISLNK(info.st_mode):
        os.symlink(os.readlink(name, dir_fd=source), name, dir_fd=into)
    elif stat.S_ISREG(info.st_mode):
        copy_file(name, source, into)
        return
    else:
        os.mknod(name, info.st_mode, info.st_rdev, dir_fd=into)
        os.chmod(name, stat.S_IMODE(info.st_mode), dir_fd=into)
    os.chown(name, info.st_uid, info.st_gid, dir_fd=into, follow_symlinks=False)
    os.utime(name, ns=(info.st_atime_ns, info.st_mtime_ns), dir_fd=into, follow_symlinks=False)


def is_removal(info: os.stat_result) -> bool:
    """Return whether an entry of a layer is an overlay's mark for "deleted"."""
    return stat.S_ISCHR(info.st_mode) and info.st_rdev == 0


def is_opaque(folder: int) -> bool:
    """Return whether a layer's folder replaces the one below it, rather than adding to it."""
    return _OPAQUE in os.listxattr(folder) and os.getxattr(folder, _OPAQUE) == b"y"


def _clear(folder: int) -> None:
    for name in os.listdir(folder):
        _remove(folder, name)


def _remove(folder: int, name: str) -> None:
    try:
        info = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return
    if stat.S_ISDIR(info.st_mode):
        inner = os.open(name, FOLDER, dir_fd=folder)
        try:
            _clear(inner)
        finally:
            os.close(inner)
        os.rmdir(name, dir_fd=folder)
    else:
        os.unlink(name, dir_fd=folder)
