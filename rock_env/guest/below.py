"""Folders below one root, reached name by name through directory descriptors; no link on the way is followed.

Used by `trees` and `links`, in the process that unpacks. It knows nothing of tar.
"""

from __future__ import annotations

import os
import stat

from .places import Refused
from .protocol import INVALID

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
INSIDE, OPEN, UNKNOWN, OUT = range(4)
"""Where a link leads: inside, by folders alone; inside as things stand, by links or names that may yet change; up again
from where nothing stands, so that nobody can say; above the root."""
_MAX_HOPS = 40
"""Links that the kernel follows in one path."""


def enter(root: int, names: list[str], member: str, *, make: bool = True) -> int:
    """Open a folder below the root, made where it is absent. Raise `Refused` for a link, or a file, on the way."""
    folder = os.dup(root)
    for name in names:
        try:
            try:
                inner = os.open(name, FOLDER, dir_fd=folder)
            except FileNotFoundError:
                if not make:
                    raise
                os.mkdir(name, 0o755, dir_fd=folder)
                inner = os.open(name, FOLDER, dir_fd=folder)
        except NotADirectoryError as error:
            raise Refused(
                INVALID, f"member {member!r} of the tar stream passes through {name!r}, which is no folder"
            ) from error
        finally:
            os.close(folder)
        folder = inner
    return folder


def leads(root: int, names: list[str], target: str) -> int:
    """Return where a link to `target`, made in the folder `names` below the root, leads: a constant of this module.

    Links that stand on the way now count as they are.
    """
    way = [os.dup(root)]
    left = [*reversed(target.split("/")), *reversed(names)]  # the next one last
    hops = 0
    try:
        while left:
            name = left.pop()
            if name in ("", "."):
                continue
            if name == "..":
                os.close(way.pop())
                if not way:
                    return OUT
                continue
            kind = _kind(name, way[-1])
            if kind == stat.S_IFDIR:
                way.append(os.open(name, FOLDER, dir_fd=way[-1]))
                continue
            hops += kind == stat.S_IFLNK
            if kind != stat.S_IFLNK or hops > _MAX_HOPS:
                return UNKNOWN if ".." in left else OPEN if left or hops else INSIDE
            onward = os.readlink(name, dir_fd=way[-1])
            if onward.startswith("/"):
                return OUT
            left += reversed(onward.split("/"))
    finally:
        for folder in way:
            os.close(folder)
    return OPEN if hops else INSIDE


def _kind(name: str, folder: int) -> int:
    """Return the type of a file, 0 where there is none."""
    try:
        return stat.S_IFMT(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return 0
