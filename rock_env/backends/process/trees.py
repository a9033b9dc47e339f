"""Copying the files of a box exactly: owners, modes, times, links, holes, attributes, and what an overlay removed.

The files of boxes are not trusted: everything goes by folder descriptors, and no symbolic link is ever followed. Standard
library alone.
"""

from __future__ import annotations

import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["MAX_DEPTH", "TooDeepError", "copy", "copy_file", "copy_folder", "copy_properties"]

MAX_DEPTH = 400
"""Folders below each other. Deeper trees are refused: each level is a call and two descriptors."""
_BLOCK = 1 << 20
_OVERLAY = ("trusted.overlay.", "user.overlay.")
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def copy(source: int, target: int, *, opaque: str) -> int:
    """Copy all below the folder `source` into the empty folder `target`; return the bytes of the files.

    Removed files stay marked as removed, and folders as opaque by the attribute `opaque`; an overlay's other
    attributes tell of the places the files came from and are left out.
    """
    mask = os.umask(0)
    try:
        return _Copy(target, opaque).folder(source, target, "", 0)
    finally:
        os.umask(mask)


class TooDeepError(OSError):
    """A tree cannot be copied, and whoever made it is to blame."""


def copy_folder(source: str, target: str) -> None:
    """Copy all below one folder into another, which is empty."""
    fds = [os.open(path, _FOLDER) for path in (source, target)]
    try:
        copy(fds[0], fds[1], opaque="")
    finally:
        for fd in fds:
            os.close(fd)


class _Copy:
    def __init__(self, top: int, opaque: str) -> None:
        self.top = top
        self.opaque = opaque
        self.linked: dict[tuple[int, int], str] = {}

    def folder(self, source: int, target: int, path: str, depth: int) -> int:
        if depth > MAX_DEPTH:
            raise TooDeepError(f"folders lie more than {MAX_DEPTH} deep")
        copied = 0
        with os.scandir(source) as entries:
            names = [entry.name for entry in entries]
        for name in names:
            info = os.stat(name, dir_fd=source, follow_symlinks=False)
            if stat.S_ISDIR(info.st_mode):
                copied += self.below(source, target, name, (path, depth))
            else:
                copied += self.file((source, target), name, f"{path}{name}", info)
        return copied

    def below(self, source: int, target: int, name: str, where: tuple[str, int]) -> int:
        """Copy one folder with what it holds, its times last."""
        path, depth = where
        os.mkdir(name, 0o700, dir_fd=target)
        inner = os.open(name, _FOLDER, dir_fd=source)
        try:
            outer = os.open(name, _FOLDER, dir_fd=target)
            try:
                copied = self.folder(inner, outer, f"{path}{name}/", depth + 1)
                copy_properties(inner, outer, os.fstat(inner), opaque=self.opaque)
            finally:
                os.close(outer)
        finally:
            os.close(inner)
        return copied

    def file(self, folders: tuple[int, int], name: str, path: str, info: os.stat_result) -> int:
        """Copy anything but a folder."""
        source, target = folders
        if info.st_nlink > 1:
            first = self.linked.setdefault((info.st_dev, info.st_ino), path)
            if first != path:
                os.link(first, name, src_dir_fd=self.top, dst_dir_fd=target, follow_symlinks=False)
                return 0
        if stat.S_ISREG(info.st_mode):
            return copy_file(name, source, target, opaque=self.opaque)
        if stat.S_ISLNK(info.st_mode):
            os.symlink(os.readlink(name, dir_fd=source), name, dir_fd=target)
        else:  # a pipe, a socket, or the character device 0/0 by which an overlay marks what was removed
            os.mknod(name, info.st_mode, info.st_rdev, dir_fd=target)
        os.chown(name, info.st_uid, info.st_gid, dir_fd=target, follow_symlinks=False)
        os.utime(name, ns=(info.st_atime_ns, info.st_mtime_ns), dir_fd=target, follow_symlinks=False)
        return 0


def copy_file(name: str, source: int, target: int, *, opaque: str = "") -> int:
    """Copy a regular file, its holes too, from one open folder to another that has none of its name; return its bytes."""
    inner = os.open(name, _READ, dir_fd=source)
    try:
        outer = os.open(name, _CREATE, 0o600, dir_fd=target)
        try:
            info, copied = os.fstat(inner), 0
            for start, end in _extents(inner, info.st_size):
                os.lseek(outer, start, os.SEEK_SET)
                while start < end and (sent := os.sendfile(outer, inner, start, min(end - start, _BLOCK))):
                    start += sent
                    copied += sent
            if copied < info.st_size:
                os.truncate(outer, info.st_size)  # it may end with a hole
            copy_properties(inner, outer, info, opaque=opaque)
        finally:
            os.close(outer)
    finally:
        os.close(inner)
    return copied


def copy_properties(inner: int, outer: int, info: os.stat_result, *, opaque: str = "") -> None:
    """Copy owner, attributes, mode and times, in the order in which one does not undo another.

    Of an overlay's own attributes only `opaque` is copied.
    """
    os.fchown(outer, info.st_uid, info.st_gid)
    for name in os.listxattr(inner):
        if name == opaque or not name.startswith(_OVERLAY):
            os.setxattr(outer, name, os.getxattr(inner, name))
    os.fchmod(outer, stat.S_IMODE(info.st_mode))
    os.utime(outer, ns=(info.st_atime_ns, info.st_mtime_ns))


def _extents(fd: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield the parts of a file that hold data."""
    position = 0
    while position < size:
        try:
            start = os.lseek(fd, position, os.SEEK_DATA)
        except OSError:
            return  # only a hole is left
        position = os.lseek(fd, start, os.SEEK_HOLE)
        yield start, position
