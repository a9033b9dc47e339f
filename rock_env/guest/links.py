"""Folders and links below the root of a tree that is unpacked: reached name by name, made where they never lead out of it.

Used by `trees` and `changes`, in the process that unpacks; it knows nothing of tar. `enter` goes through directory
descriptors and follows no link. A symbolic link whose way is by folders alone is made at once: no later member can replace a
folder, and what its last name may become is checked itself. Any other, which leads by links or by what is not there yet,
could be turned aside by what comes later; it is made when all else stands, and all such are then checked together.
"""

from __future__ import annotations

import os
import stat

from .places import Refused
from .protocol import INVALID

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tarfile import TarInfo
    from typing import NoReturn


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


class Links:
    """The links of one upload."""

    def __init__(self, root: int) -> None:
        self._root = root
        self._files: set[int] = set()
        self._later: dict[tuple[str, ...], tuple[str, str, float]] = {}

    def file_made(self, names: list[str], inode: int) -> None:
        """Note a regular file of this upload, which hard links may name."""
        self._files.add(inode)
        self._later.pop(tuple(names), None)

    def make_symbolic(self, names: list[str], info: TarInfo) -> None:
        """Make a symbolic link, or put it off. Raise `Refused` for one that leads out."""
        target, depth = info.linkname, len(names) - 1
        if not target or "\0" in target or target.startswith("/"):
            self._refuse(info.name, target)
        for part in target.split("/"):
            depth += -1 if part == ".." else part not in ("", ".")
            if depth < 0:
                self._refuse(info.name, target)
        folder = enter(self._root, names[:-1], info.name)
        try:
            where = leads(self._root, names[:-1], target)
            if where == OUT:
                self._refuse(info.name, target)
            clear(names[-1], folder, info.name)
            self._later.pop(tuple(names), None)
            if where == INSIDE:
                _link(target, names[-1], folder, info.mtime)
            else:
                self._later[tuple(names)] = (info.name, target, info.mtime)
        finally:
            os.close(folder)

    def make_hard(self, names: list[str], info: TarInfo) -> None:
        """Make a hard link to a file of this upload. Raise `Refused` for any other."""
        theirs = [part for part in info.linkname.split("/") if part not in ("", ".")]
        if not theirs or info.linkname.startswith("/") or ".." in theirs or "\0" in info.linkname:
            self._refuse(info.name, info.linkname, hard=True)
        try:
            source = enter(self._root, theirs[:-1], info.name, make=False)
        except FileNotFoundError:
            self._refuse(info.name, info.linkname, hard=True)
        folder = enter(self._root, names[:-1], info.name)
        try:
            inode = _inode(theirs[-1], source)
            if inode not in self._files:
                self._refuse(info.name, info.linkname, hard=True)
            if _inode(names[-1], folder) == inode:
                return  # it is that file already
            clear(names[-1], folder, info.name)
            os.link(theirs[-1], names[-1], src_dir_fd=source, dst_dir_fd=folder, follow_symlinks=False)
            if _inode(names[-1], folder) != inode:  # another process of the box put something in its place
                os.unlink(names[-1], dir_fd=folder)
                self._refuse(info.name, info.linkname, hard=True)
        finally:
            os.close(source)
            os.close(folder)
        self._later.pop(tuple(names), None)

    def finish(self) -> None:
        """Make what was put off. Raise `Refused` where some of that leads out; all that does is removed."""
        for (*names, name), (member, target, mtime) in self._later.items():
            folder = enter(self._root, names, member)
            try:
                clear(name, folder, member)
                _link(target, name, folder, mtime)
            finally:
                os.close(folder)
        bad = [
            (names, name, member, target)
            for (*names, name), (member, target, _) in self._later.items()
            if leads(self._root, names, target) in (UNKNOWN, OUT)
        ]
        for names, name, member, _ in bad:
            folder = enter(self._root, names, member)
            try:
                clear(name, folder, member)
            finally:
                os.close(folder)
        if bad:
            self._refuse(bad[0][2], bad[0][3])

    def _refuse(self, member: str, target: str, *, hard: bool = False) -> NoReturn:
        what, why = "a symbolic link", "leads out of the folder it is unpacked in"
        if hard:
            what, why = "a hard link", "is no file that came before it in the stream"
        raise Refused(INVALID, f"member {member!r} of the tar stream is {what} to {target!r}, which {why}")


def _link(target: str, name: str, folder: int, mtime: float) -> None:
    os.symlink(target, name, dir_fd=folder)
    os.utime(name, (mtime, mtime), dir_fd=folder, follow_symlinks=False)


def clear(name: str, folder: int, member: str) -> None:
    """Remove a file or link that stands where a member is to be. Raise `Refused` for a folder."""
    try:
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        pass
    except IsADirectoryError as error:
        raise Refused(
            INVALID, f"member {member!r} of the tar stream would replace a folder; remove that before"
        ) from error


def _inode(name: str, folder: int) -> int:
    """Return the inode number of a regular file, -1 for anything else and for nothing."""
    try:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return -1
    return status.st_ino if stat.S_ISREG(status.st_mode) else -1
