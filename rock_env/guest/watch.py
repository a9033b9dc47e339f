"""Changes of files, pushed as the kernel tells them (inotify).

Used by `init`, imported when the first watch is asked for.
"""

# ruff: noqa: PTH112, PTH118, PTH208
from __future__ import annotations

import marshal
import os
from _struct import Struct
from errno import ENAMETOOLONG
from stat import S_ISDIR

from .door import Job, Line
from .libc import inotify_add_watch, inotify_init
from .loop import READABLE, Loop
from .places import BoxFolders, Refused
from .protocol import BEGUN, EVENT, INVALID

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MAX_FOLDERS = 8192
CREATED, MODIFIED, DELETED, OVERFLOW = b"C", b"M", b"D", b"O"
_RECORD = Struct("iIII")
_MODIFY, _MOVED_FROM, _MOVED_TO, _CREATE, _DELETE = 0x2, 0x40, 0x80, 0x100, 0x200
_OVERFLOWED, _ATTRIB, _DELETE_SELF, _MOVE_SELF, _IS_FOLDER = 0x4000, 0x4, 0x400, 0x800, 0x40000000
_WANTED = _MODIFY | _MOVED_FROM | _MOVED_TO | _CREATE | _DELETE | _ATTRIB | _DELETE_SELF | _MOVE_SELF
_KINDS = ((_MOVED_FROM | _DELETE, DELETED), (_MOVED_TO | _CREATE, CREATED), (_MODIFY | _ATTRIB, MODIFIED))


def _is_folder(path: str) -> bool:
    """Return whether there is a folder, and no link to one. Raise `OSError` for a path longer than the system takes."""
    try:
        return S_ISDIR(os.lstat(path).st_mode)
    except OSError as error:
        if error.errno == ENAMETOOLONG:
            raise
        return False


class Watch(Job):
    """One watch of a file, or of a folder and, if asked for, all below it."""

    def __init__(
        self, request: int, payload: bytes | bytearray, places: BoxFolders, line: Line, loop: Loop
    ) -> None:
        path, self._recursive = marshal.loads(payload)
        real = places.inside(path)
        self._line, self._loop, self._request = line, loop, request
        self._names: dict[int, str] = {}
        self._fd = inotify_init()
        try:
            os.lstat(real)
            self._add(real, "")
        except BaseException:
            os.close(self._fd)
            raise
        self._real = real
        loop.watch(self._fd, READABLE, lambda _: self._read())
        line.begin(request, self)
        line.send(BEGUN, request)

    def push(self) -> None:
        if self._fd >= 0:
            self._loop.watch(self._fd, READABLE, lambda _: self._read())

    def detach(self) -> None:
        self._line.finish(self._request)
        if self._fd >= 0:
            self._loop.forget(self._fd)
            os.close(self._fd)
            self._fd = -1

    def _add(self, real: str, name: str) -> None:
        """Watch, and tell of what was in a new folder before it was watched."""
        waiting = [(real, name)]
        while waiting:
            real, name = waiting.pop()
            if len(self._names) >= MAX_FOLDERS:
                raise Refused(
                    INVALID, f"more than {MAX_FOLDERS} folders cannot be watched; watch a part of them"
                )
            self._names[inotify_add_watch(self._fd, os.fsencode(real), _WANTED)] = name
            if self._recursive and os.path.isdir(real):
                for entry in os.listdir(real):
                    inner = os.path.join(real, entry)
                    if _is_folder(inner):
                        waiting.append((inner, f"{name}/{entry}".lstrip("/")))

    def _read(self) -> None:
        try:
            data = os.read(self._fd, 1 << 16)
        except BlockingIOError:
            return
        start = 0
        while start < len(data):
            watch, mask, _, size = _RECORD.unpack_from(data, start)
            start += _RECORD.size
            entry = data[start : start + size].rstrip(b"\0").decode(errors="surrogateescape")
            start += size
            self._tell(watch, mask, entry)
        if self._line.full and self._fd >= 0:  # the kernel keeps what comes, and says when that was too much
            self._loop.forget(self._fd)
            self._line.push_later(self)

    def _tell(self, watch: int, mask: int, entry: str) -> None:
        if mask & _OVERFLOWED:
            self._event(OVERFLOW, "")
            return
        folder = self._names.get(watch)
        if folder is None:
            return
        name = f"{folder}/{entry}".strip("/")
        if mask & (_DELETE_SELF | _MOVE_SELF):
            if not folder:
                self._event(DELETED, "")
            self._names.pop(watch)
            return
        for bits, kind in _KINDS:
            if mask & bits:
                self._event(kind, name)
        if mask & _IS_FOLDER and mask & (_CREATE | _MOVED_TO) and self._recursive:
            real = os.path.join(self._real, name)
            try:
                self._add(real, name)
                for found in os.listdir(real):
                    self._event(CREATED, f"{name}/{found}")
            except (OSError, Refused):
                self._event(OVERFLOW, name)  # it went again, or there are too many

    def _event(self, kind: bytes, name: str) -> None:
        text: Any = name.encode(errors="surrogateescape")
        self._line.send(EVENT, self._request, kind, text)
