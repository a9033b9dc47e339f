"""Files of the box, for the server: read, write, describe, list. It never trusts a path.

Used by `init`. Content goes in blocks, both ways only as far as the other end has room, so that a file of any size
needs little memory; between two blocks everything else gets its turn.
"""

# pathlib would cost more than the rest of a box's start together.
# ruff: noqa: PTH105, PTH108, PTH112, PTH113, PTH114, PTH115, PTH118, PTH119, PTH120, PTH208
from __future__ import annotations

import marshal
import os
import stat
from errno import EAGAIN, EDQUOT, EIO, EMFILE, ENFILE, ENOENT, ENOMEM, ENOSPC
from time import monotonic

from .door import Job, Line
from .places import BoxFolders, Refused, make_folders
from .protocol import (
    BULK_WINDOW_BYTES,
    COUNT,
    CREDIT,
    DATA,
    DISK_FULL,
    DONE,
    ENTRY,
    EXHAUSTED,
    INFRA,
    INVALID,
    NOT_FOUND,
    PRECONDITION,
    REFUSED,
    WINDOW_BYTES,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Any

    from .loop import Loop

MAX_ENTRIES = 100_000
_SLICE = 500
_PAUSE_S = 0.001
"""So many entries of a folder are read, or described, in a row; then whatever else is asked gets its turn."""
MAX_KEYS = 20_000
"""Keys of appends that are remembered."""
_BLOCK = 1 << 19
_FULL = {ENOSPC, EDQUOT}
_BROKEN = {ENOMEM, EIO}
_NO_ROOM = {EAGAIN, EMFILE, ENFILE}
"""There are as many processes or open files as there may be."""
OWN_LIMITS = {"disk": 0, "pids": 0}
"""What the server tells of the box: whether its disk is its own, how many processes it may have; 0 where not known."""


def error_kind(error: OSError) -> bytes:
    """Return how the server is told of a failed system call."""
    if error.errno == ENOENT:
        return NOT_FOUND
    if error.errno in _NO_ROOM:
        own = (
            error.errno == EAGAIN and 0 < OWN_LIMITS["pids"] * 3 // 4 <= _tasks()
        )  # some may just have ended
        return EXHAUSTED.lower() if own else EXHAUSTED
    if error.errno in _FULL:
        return DISK_FULL.lower() if OWN_LIMITS["disk"] else DISK_FULL
    return INFRA if error.errno in _BROKEN else INVALID


def _tasks() -> int:
    """Return how many processes and threads there are in the box."""
    count = 0
    for name in os.listdir("/proc"):
        try:
            count += len(os.listdir(f"/proc/{name}/task")) if name.isdigit() else 0
        except OSError:
            continue  # it ended just now
    return count


class _Reading(Job):
    """A file being sent."""

    def __init__(self, line: Line, request: int, fd: int, offset: int, length: int) -> None:
        self._line = line
        self._request = request
        self._fd = fd
        self._start = self._offset = self._acked = offset
        self._end = offset + length

    def push(self) -> None:
        try:
            while True:
                room = min(_BLOCK, self._end - self._offset)
                data = os.pread(self._fd, room, self._offset) if room else b""
                if not data:
                    self._line.send(DONE, self._request)
                    break
                self._line.send(DATA, self._request, data)
                self._offset += len(data)
                if self._offset - self._acked >= BULK_WINDOW_BYTES:
                    return
                if self._line.full:
                    self._line.push_later(self)
                    return
        except OSError as error:
            self._line.send(REFUSED, self._request, error_kind(error), str(error).encode())
        self.detach()

    def ack(self, index: int, offset: int) -> None:
        if self._fd >= 0 and self._acked < self._start + offset <= self._offset:
            waiting = self._offset - self._acked >= BULK_WINDOW_BYTES
            self._acked = self._start + offset
            if waiting:
                self.push()

    def detach(self) -> None:
        self._line.finish(self._request)
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class _Writing(Job):
    """A file being received: into a part beside its place, which then takes the place or is added to its end."""

    def __init__(self, files: Files, request: int, real: str, mode: int, append: bool) -> None:
        self._files = files
        self._line = files.line
        self._request = request
        self._real = real
        self._mode = mode
        self._append = append
        self._part = f"{os.path.dirname(real)}/.{request}.{os.getpid()}.part"
        self._fd = os.open(self._part, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self._written = self._credited = 0
        self.key = ""
        self.digest = 0

    def input(self, data: bytes | bytearray) -> None:
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(self._fd, view) :]
        except OSError as error:
            self._fail(error)
            return
        self._written += len(data)
        if self._written - self._credited >= WINDOW_BYTES // 4:
            self._credited = self._written
            self._line.send(CREDIT, self._request, COUNT.pack(self._written))

    def input_end(self) -> None:
        try:
            os.fchmod(self._fd, self._mode)
            if self.key and self._files.written(self.key):
                pass  # by another call with this key, while this one was sending
            elif self._append and self._files.exists(self._real):
                self._add()
            else:
                os.replace(self._part, self._real)
                self._part = ""
        except OSError as error:
            self._fail(error)
            return
        if self.key:
            self._files.remember(self.key, self.digest)
        self._line.send(DATA, self._request, COUNT.pack(self._written))
        self._line.send(DONE, self._request)
        self.detach()

    def detach(self) -> None:
        self._line.finish(self._request)
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        if self._part:
            os.unlink(self._part)
            self._part = ""

    def _add(self) -> None:
        """Copy the part to the end of the file; if that fails midway, the file is as it was."""
        target = os.open(self._real, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            size = os.lseek(target, 0, os.SEEK_END)
            done = 0
            try:
                while done < self._written:
                    done += os.sendfile(target, self._fd, done, self._written - done)
            except OSError:
                os.ftruncate(target, size)
                raise
        finally:
            os.close(target)

    def _fail(self, error: OSError) -> None:
        self._line.send(REFUSED, self._request, error_kind(error), str(error).encode(errors="replace"))
        self.detach()


class Files:
    """Answers file requests."""

    def __init__(self, places: BoxFolders, line: Line, loop: Loop) -> None:
        self.line = line
        self.loop = loop
        self._places = places
        self._done: dict[str, int] = {}

    def remember(self, key: str, digest: int) -> None:
        self._done[key] = digest
        if len(self._done) > MAX_KEYS:
            del self._done[next(iter(self._done))]

    def written(self, key: str) -> bool:
        return key in self._done

    def exists(self, real: str) -> bool:
        return os.path.lexists(real)

    def read(self, request: int, payload: bytes | bytearray) -> None:
        """Send part of a file."""
        path, offset, length = marshal.loads(payload)
        # O_NONBLOCK: opening a named pipe must not stop the box.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        fd = os.open(self._places.inside(path), flags)
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise Refused(INVALID, f"{path!r} is not a regular file")
        reading = _Reading(self.line, request, fd, offset, length)
        self.line.begin(request, reading)
        reading.push()

    def write(self, request: int, payload: bytes | bytearray) -> None:
        """Take a file, whose bytes follow as INPUT; or say at once that the append with this key was done."""
        path, mode, append, key, digest = marshal.loads(payload)
        if key and key in self._done:
            if self._done[key] != digest:
                raise Refused(
                    PRECONDITION, f"idempotency key {key!r} was used for another write; take a new one"
                )
            self.line.send(DONE, request)
            return
        real = self._places.inside(path)
        if os.path.isdir(real):
            raise Refused(INVALID, f"{path!r} is a folder")
        if os.path.lexists(real) and not os.path.isfile(real):
            raise Refused(INVALID, f"{path!r} is not a regular file")
        make_folders(os.path.dirname(real))
        writing = _Writing(self, request, real, mode, append)
        writing.key, writing.digest = key, digest
        self.line.begin(request, writing)

    def stat(self, request: int, payload: bytes | bytearray) -> None:
        """Describe one file; a symbolic link is described, not followed."""
        path = payload.decode(errors="surrogateescape")
        absolute = os.path.normpath(self._places.absolute(path))
        if absolute in self._places.roots:
            real = self._places.inside(path)
        else:
            real = os.path.join(self._places.inside(os.path.dirname(absolute)), os.path.basename(absolute))
        self.line.send(DATA, request, _entry(real, path))

    def list(self, request: int, payload: bytes | bytearray) -> None:
        """Describe a folder's entries, each by its path from there. Links are never followed."""
        path, recursive = marshal.loads(payload)
        listing = _Listing(self, request, self._places.inside(path), path, recursive)
        self.line.begin(request, listing)
        listing.push()


class _Listing(Job):
    """A folder being described, some entries at a time, so that nothing else in the box waits for a huge one."""

    def __init__(self, files: Files, request: int, real: str, path: str, recursive: bool) -> None:
        self._line = files.line
        self._loop = files.loop
        self._request = request
        self._path = path
        self._recursive = recursive
        self._folders = [(real, "")]
        self._read = 0
        self._slices = self._walk()
        self._next: list[Any] | None = None

    def push(self) -> None:
        self._next = None
        try:
            next(self._slices)
        except StopIteration:
            self._line.send(DONE, self._request)
        except Refused as refused:
            self._line.send(REFUSED, self._request, refused.kind, refused.message.encode(errors="replace"))
        except OSError as error:
            self._line.send(REFUSED, self._request, error_kind(error), str(error).encode(errors="replace"))
        else:
            if self._line.full:
                self._line.push_later(self)
            else:  # not at once: the loop would look at nothing else before
                self._next = self._loop.at(monotonic() + _PAUSE_S, self.push)
            return
        self._line.finish(self._request)

    def detach(self) -> None:
        if self._next is not None:
            self._loop.cancel(self._next)
        self._slices.close()
        self._line.finish(self._request)

    def _walk(self) -> Generator[None, None, None]:
        while self._folders:
            folder, prefix = self._folders.pop()
            names: list[str] = []
            try:
                yield from self._names(folder, names)
            except FileNotFoundError:
                if not prefix:
                    raise
                continue  # removed meanwhile
            names.sort()
            for number, name in enumerate(names, 1):
                self._tell(f"{folder}/{name}", prefix + name)
                if number % _SLICE == 0:
                    yield

    def _names(self, folder: str, names: list[str]) -> Generator[None, None, None]:
        with os.scandir(folder) as entries:
            for entry in entries:
                names.append(entry.name)
                self._read += 1
                if self._read > MAX_ENTRIES:
                    raise Refused(
                        INVALID, f"{self._path!r} has more than {MAX_ENTRIES} entries; list a part of it"
                    )
                if self._read % _SLICE == 0:
                    yield

    def _tell(self, real: str, shown: str) -> None:
        try:
            self._line.send(DATA, self._request, _entry(real, shown))
        except FileNotFoundError:
            return  # removed meanwhile
        if self._recursive and os.path.isdir(real) and not os.path.islink(real):
            self._folders.append((real, f"{shown}/"))


def _entry(real: str, shown: str) -> bytes:
    info = os.lstat(real)
    link = os.readlink(real).encode(errors="surrogateescape") if stat.S_ISLNK(info.st_mode) else b""
    path = shown.encode(errors="surrogateescape")
    entry: Any = ENTRY.pack(info.st_size, info.st_mode, info.st_mtime, len(path), len(link))
    return bytes(entry + path + link)
