"""Trees of files as tar streams: packed to, or unpacked from, the standard streams of a process forked for it.

Used by `commands` and `changes`, imported when the first tree is asked for; `tarfile` only in the forked process.
Unpacking makes folders, regular files and links between them below one folder: whatever could lead elsewhere is refused
by name. Errors go to stderr, their kind (see `protocol`) first, and the process exits with 1.
"""

# ruff: noqa: PTH112, PTH119, PTH208
from __future__ import annotations

import os
import stat

from .files import error_kind
from .links import FOLDER, Links, clear, enter
from .places import BoxFolders, Refused, make_folders
from .protocol import INVALID

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from tarfile import TarInfo
    from typing import Any

_SEND_BYTES = 1 << 20
BLOCK = 512  # of the tar format
_NAMES_AT_ONCE = 15  # each has at most 255 bytes, and a path 4,095
_MOST_BYTES = (1 << 63) - 1
_MOST_OWNER = (1 << 32) - 1
_LATEST = 1 << 40  # seconds since 1970, or before


def tree_act(what: dict[str, Any], places: BoxFolders) -> Callable[[], int]:
    """Return what the forked process shall do. Raise `Refused` for a path that leads out of the box."""
    real = places.inside(what["argv"][1])
    if what["tree"] == "unpack":
        return lambda: told(lambda: _unpack(real))
    if not os.path.lexists(real):
        raise FileNotFoundError(2, "No such file or directory", what["argv"][1])
    return lambda: told(lambda: _pack(real))


def told(act: Callable[[], None]) -> int:
    """Run what the forked process does and return its status; what it refuses it says on stderr."""
    try:
        act()
    except Refused as refused:
        os.write(2, refused.kind + refused.message.encode(errors="replace"))
        return 1
    except OSError as error:
        os.write(2, error_kind(error) + str(error).encode(errors="replace"))
        return 1
    return 0


def write(data: bytes) -> None:
    """Write all of it to standard output."""
    view = memoryview(data)
    while view:
        view = view[os.write(1, view) :]


class Packer:
    """A tar stream on standard output."""

    def __init__(self) -> None:
        self._names: dict[tuple[int, int], str] = {}  # of files that have more than one name

    def add(self, path: str, name: str, mode: int | None = None, *, within: int | None = None) -> bool:
        """Add a file, a link or a folder without what is in it; pipes and sockets mean nothing elsewhere.

        `path` counts from the open folder `within`, if given. Return whether it is a folder.
        """
        import tarfile

        info, status = tarfile.TarInfo(name), os.lstat(path, dir_fd=within)
        info.mode, info.mtime = stat.S_IMODE(status.st_mode) if mode is None else mode, status.st_mtime
        info.uid, info.gid = status.st_uid, status.st_gid
        first = name
        if stat.S_ISREG(status.st_mode) and status.st_nlink > 1:
            first = self._names.setdefault((status.st_dev, status.st_ino), name)
        if first != name:
            info.type, info.linkname = tarfile.LNKTYPE, first
        elif stat.S_ISREG(status.st_mode):
            info.size = status.st_size
        elif stat.S_ISLNK(status.st_mode):
            info.type, info.linkname = tarfile.SYMTYPE, os.readlink(path, dir_fd=within)
        elif stat.S_ISDIR(status.st_mode):
            info.type = tarfile.DIRTYPE
        else:
            return False
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
        fd = os.open(path, flags, dir_fd=within) if info.isreg() else -1
        self._head(info)
        if fd >= 0:
            done = 0
            while done < info.size:
                count = os.sendfile(1, fd, done, min(_SEND_BYTES, info.size - done))
                if not count:
                    raise Refused(INVALID, f"{name!r} became shorter while it was read")
                done += count
            os.close(fd)
            write(b"\0" * (-info.size % BLOCK))
        return info.isdir()

    def content(self, name: str, data: bytes) -> None:
        """Add a file that is nowhere but here."""
        import tarfile

        info = tarfile.TarInfo(name)
        info.size = len(data)
        self._head(info)
        write(data + b"\0" * (-len(data) % BLOCK))

    def _head(self, info: TarInfo) -> None:
        import tarfile

        write(info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape"))

    def end(self) -> None:
        """Write the end mark."""
        write(b"\0" * (2 * BLOCK))


def _pack(real: str) -> None:
    packer = Packer()
    if not os.path.isdir(real):
        packer.add(real, os.path.basename(real))
    else:
        root, prefixes = os.open(real, FOLDER), [""]
        while prefixes:
            prefix = prefixes.pop()
            folder = _open_below(root, prefix)
            names = sorted(os.listdir(folder))
            prefixes += [
                f"{prefix}{name}/" for name in names if packer.add(name, prefix + name, within=folder)
            ]
            os.close(folder)
    packer.end()


def _open_below(root: int, path: str) -> int:
    """Open a folder by its path from an open one, which ends with / and may be longer than the system takes at once."""
    folder, names = os.dup(root), path.split("/")[:-1] or ["."]
    for start in range(0, len(names), _NAMES_AT_ONCE):
        step = "/".join(names[start : start + _NAMES_AT_ONCE])
        inner = os.open(step, FOLDER, dir_fd=folder)
        os.close(folder)
        folder = inner
    return folder


class Input:
    """Standard input as `tarfile` reads it: forwards, with a position."""

    def __init__(self) -> None:
        self._at = 0
        self._splices = True
        self.cut = False
        """It ended where more was asked for."""

    def tell(self) -> int:
        return self._at

    def seek(self, position: int) -> None:
        while self._at < position and self.read(min(position - self._at, _SEND_BYTES)):
            pass

    def read(self, size: int) -> bytes:
        data = b""
        while len(data) < size and (more := os.read(0, size - len(data))):
            data += more
        self._at += len(data)
        self.cut = self.cut or len(data) < size
        return data

    def copy(self, fd: int, size: int) -> None:
        """Move `size` bytes to a file, inside the kernel where it can."""
        while size > 0:
            count = self._move(fd, size)
            if not count:
                raise Refused(INVALID, "the tar stream ended within a file")
            self._at += count
            size -= count

    def _move(self, fd: int, size: int) -> int:
        if self._splices:
            try:
                return os.splice(0, fd, min(size, _SEND_BYTES))
            except OSError as error:
                if error.errno != 22:  # EINVAL: not between these two
                    raise
                self._splices = False
        data = os.read(0, min(size, _SEND_BYTES))
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
        return len(data)


def _unpack(real: str) -> None:
    import tarfile

    make_folders(real)
    root = os.open(real, FOLDER)
    links = Links(root)
    source = Input()
    modes: list[tuple[list[str], str, int]] = []
    files = total = 0
    try:
        # The format alone is read here; what is made of a member is decided below.
        with tarfile.TarFile(fileobj=source, mode="r", errorlevel=2) as tar:  # type: ignore[arg-type]
            while (info := tar.next()) is not None:
                tar.members = []  # type: ignore[attr-defined]  # else it keeps every member it has seen
                names = safe_parts(info)
                if info.isreg() and tar.offset != info.offset_data + info.size + -info.size % BLOCK:
                    raise Refused(INVALID, f"member {info.name!r} of the tar stream has two sizes")
                if info.isdir():
                    os.close(enter(root, names, info.name))
                    modes.append((names, info.name, info.mode))
                elif info.issym():
                    links.make_symbolic(names, info)
                elif info.islnk():
                    links.make_hard(names, info)
                else:
                    links.file_made(names, make_file(root, names, info, source))
                    source.seek(source.tell() + -info.size % BLOCK)
                    files += 1
                    total += info.size
    except (tarfile.TarError, ValueError, TypeError, OverflowError, RecursionError) as error:
        raise Refused(INVALID, f"not a tar stream that can be unpacked: {error}") from error
    if source.cut:  # a caller that was cut off must not pass for one that sent all
        raise Refused(INVALID, "the tar stream ended without its end mark")
    links.finish()
    for names, member, mode in reversed(modes):
        folder = enter(root, names, member)
        os.fchmod(folder, mode & 0o7777)
        os.close(folder)
    while os.read(0, _SEND_BYTES):
        pass  # padding behind the end
    write(b"%d %d" % (files, total))


def safe_parts(info: TarInfo) -> list[str]:
    """Return the parts of a member's name. Raise `Refused` for what is no file, folder or link below the root."""
    if not (info.isreg() or info.isdir() or info.issym() or info.islnk()) or info.issparse():
        what = {b"3": "a device", b"4": "a device", b"6": "a pipe"}.get(info.type, "of an unknown kind")
        raise Refused(
            INVALID,
            f"member {info.name!r} of the tar stream is {what}; only files, folders and links are taken",
        )
    owners = all(-_MOST_OWNER <= number <= _MOST_OWNER for number in (info.uid, info.gid))
    times = -_LATEST <= info.mtime <= _LATEST  # false for nan
    if not (owners and times and 0 <= info.size <= _MOST_BYTES and 0 <= info.mode <= _MOST_OWNER):
        raise Refused(
            INVALID,
            f"member {info.name!r} of the tar stream has a size, mode, owner or time that no file has",
        )
    names = [part for part in info.name.split("/") if part not in ("", ".")]
    if info.name.startswith("/") or ".." in names or "\0" in info.name:
        raise Refused(
            INVALID, f"member {info.name!r} of the tar stream leads out of the folder it is unpacked in"
        )
    if not names and not info.isdir():
        raise Refused(INVALID, f"member {info.name!r} of the tar stream has no name")
    return names


def make_file(root: int, names: list[str], info: TarInfo, source: Input) -> int:
    """Make a regular file and return its inode number."""
    folder = enter(root, names[:-1], info.name)
    try:
        clear(names[-1], folder, info.name)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(names[-1], flags, 0o600, dir_fd=folder)
    finally:
        os.close(folder)
    try:
        source.copy(fd, info.size)
        os.fchmod(fd, info.mode & 0o7777)
        os.utime(fd, (info.mtime, info.mtime))
        return os.fstat(fd).st_ino
    finally:
        os.close(fd)
