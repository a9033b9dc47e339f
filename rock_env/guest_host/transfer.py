"""The host's end of file contents and changes: blocks in order, both ways as far as the other end has room.

Made by `guest_host.box`. The guest's bytes are untrusted.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Generic, Literal, TypeVar

from rock_env.errors import RockError, lost_box
from rock_env.guest import protocol as guest
from rock_env.guest_host.command import Wire
from rock_env.sandbox import FileChange

__all__ = ["ChangeReader", "FileReader", "FileWriter"]

_ACK_BYTES = guest.WINDOW_BYTES
_MOST_BYTES = guest.BULK_WINDOW_BYTES + guest.MAX_FRAME_BYTES
_MOST_CHANGES = 100_000
"""Changes that nobody took yet; a box that makes more is not kept up with."""
_BLOCK_BYTES = 1 << 19
_KINDS: dict[int, Literal["created", "modified", "deleted", "overflow"]] = {
    ord("C"): "created",
    ord("M"): "modified",
    ord("D"): "deleted",
    ord("O"): "overflow",
}

_LOST = FileChange("", "overflow")

T = TypeVar("T")


class _Stream(Generic[T]):
    """What comes for one request, in order, until it is over."""

    def __init__(self, wire: Wire, request: int) -> None:
        self._wire = wire
        self._request = request
        self._items: deque[T | RockError | None] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._over = False

    async def __aenter__(self) -> _Stream[T]:
        return self

    async def __aexit__(self, *_: object) -> None:
        if not self._over:
            self._wire.send(guest.DETACH, self._request)
        self._wire.forget(self._request)

    def refused(self, error: RockError) -> None:
        self._over = True
        self._put(error)

    def lost(self, reason: str) -> None:
        self.refused(lost_box(reason))

    def _put(self, item: T | RockError | None) -> None:
        self._items.append(item)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _finish(self) -> None:
        self._over = True
        self._put(None)

    async def take(self) -> T | None:
        """Return what comes next, None at the end. Raise what the guest refused the request with."""
        while not self._items:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        item = self._items.popleft()
        if isinstance(item, RockError):
            raise item
        return item


class FileReader(_Stream[bytes | bytearray]):
    """A file that comes in blocks."""

    def __init__(self, wire: Wire, request: int) -> None:
        super().__init__(wire, request)
        self._got = self._used = self._acked = 0

    def frame(self, kind: int, payload: bytes | bytearray) -> None:
        if kind == guest.DATA:
            self._put(payload)
            self._got += len(payload)
            if self._got - self._acked > _MOST_BYTES:
                raise guest.BadFrame("more of a file than there was room for")
        else:
            self._finish()

    def used(self, count: int) -> None:
        """Make room for as many bytes more."""
        self._used += count
        if self._used - self._acked >= _ACK_BYTES and not self._over:
            self._acked = self._used
            self._wire.send(guest.ACK, self._request, guest.PLACE.pack(0, self._used))


class FileWriter(_Stream[None]):
    """A file that goes out in blocks."""

    def __init__(self, wire: Wire, request: int) -> None:
        super().__init__(wire, request)
        self._sent = 0
        self._room = guest.BULK_WINDOW_BYTES
        self._credit: asyncio.Future[None] | None = None

    async def write(self, data: bytes | memoryview) -> None:
        """Send bytes once there is room. Raise what the guest refused them with."""
        view = memoryview(data)
        while view:
            if self._over:
                error = self._items[0] if self._items else None
                if isinstance(error, RockError):
                    raise error
                return  # it was written before, under the same key
            room = min(self._room - self._sent, _BLOCK_BYTES)
            if room <= 0:
                self._credit = asyncio.get_running_loop().create_future()
                await self._credit
                continue
            self._wire.send(guest.INPUT, self._request, view[:room])
            self._sent += min(room, len(view))
            view = view[room:]

    async def finish(self) -> None:
        """Put the file in its place. Raise what the guest refused it with."""
        if not self._over:
            self._wire.send(guest.INPUT_END, self._request)
        await self.take()

    def frame(self, kind: int, payload: bytes | bytearray) -> None:
        if kind == guest.CREDIT:
            self._room = guest.COUNT.unpack(payload)[0] + guest.BULK_WINDOW_BYTES
        elif kind == guest.DONE:
            self._finish()
        self._wake()

    def refused(self, error: RockError) -> None:
        super().refused(error)
        self._wake()

    def _wake(self) -> None:
        if self._credit is not None and not self._credit.done():
            self._credit.set_result(None)


class ChangeReader(_Stream[FileChange | Literal["begun"]]):
    """Changes of files as they happen."""

    def frame(self, kind: int, payload: bytes | bytearray) -> None:
        if kind == guest.BEGUN:
            self._put("begun")
        elif kind == guest.EVENT:
            path = bytes(payload[1:]).decode(errors="surrogateescape")
            if len(self._items) < _MOST_CHANGES:
                self._put(FileChange(path, _KINDS.get(payload[0], "overflow")))
            elif self._items[-1] != _LOST:
                self._put(_LOST)
        else:
            self._finish()
