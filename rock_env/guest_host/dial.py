"""The host's end of a connection to a port of a box: bytes both ways as far as the other end has room.

Made by `guest_host.box`. The guest's bytes are untrusted.
"""

from __future__ import annotations

import asyncio
from collections import deque

from rock_env.errors import InfraError, RockError
from rock_env.guest import protocol as guest
from rock_env.guest_host.command import Wire

__all__ = ["GuestDial"]

_ACK_BYTES = guest.WINDOW_BYTES // 4
_BLOCK_BYTES = 1 << 18


class GuestDial:
    """One connection. Use it with `async with`, which waits until it stands; leaving closes it."""

    def __init__(self, wire: Wire, request: int) -> None:
        self._wire = wire
        self._request = request
        self._loop = asyncio.get_running_loop()
        self._begun: asyncio.Future[None] = self._loop.create_future()
        self._blocks: deque[bytes] = deque()
        self._changed = asyncio.Event()
        self._ended = self._over = False
        self._error: RockError | None = None
        self._sent = self._used = self._acked = 0
        self._room = guest.WINDOW_BYTES

    async def __aenter__(self) -> GuestDial:
        try:
            await self._begun
        except BaseException:
            self._leave()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        self._leave()

    def _leave(self) -> None:
        if not self._over:
            self._over = True
            self._wire.send(guest.DETACH, self._request)
        self._wire.forget(self._request)

    async def read(self) -> bytes:
        """Return the next bytes; empty at the end. Raise `FailedPrecondition` where the box broke it off."""
        while not self._blocks:
            if self._error is not None:
                raise self._error
            if self._ended:
                return b""
            await self._wait()
        block = self._blocks.popleft()
        self._used += len(block)
        if self._used - self._acked >= _ACK_BYTES and not self._over:
            self._acked = self._used
            self._wire.send(guest.ACK, self._request, guest.PLACE.pack(0, self._used))
        return block

    async def write(self, data: bytes) -> None:
        """Send bytes; wait while the other end does not take them."""
        view = memoryview(data)
        while view:
            if self._error is not None:
                raise self._error
            if self._over:
                return  # the box's side is gone and nobody takes it
            room = min(self._room - self._sent, _BLOCK_BYTES)
            if room <= 0:
                await self._wait()
                continue
            self._wire.send(guest.INPUT, self._request, view[:room])
            self._sent += min(room, len(view))
            view = view[room:]

    async def end(self) -> None:
        """Send no more; what comes can still be read."""
        if not self._over:
            self._wire.send(guest.INPUT_END, self._request)

    async def _wait(self) -> None:
        # Both directions may wait at once: each looks again at whatever changed.
        changed = self._changed
        await changed.wait()

    def _tell(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def frame(self, kind: int, payload: bytes | bytearray) -> None:
        if kind == guest.BEGUN and not self._begun.done():
            self._begun.set_result(None)
        elif kind == guest.DATA and payload:
            self._blocks.append(bytes(payload))
        elif kind == guest.CREDIT:
            self._room = guest.COUNT.unpack(payload)[0] + guest.WINDOW_BYTES
        elif kind in (guest.DATA, guest.DONE):
            self._ended = True
            self._over = self._over or kind == guest.DONE
        self._tell()

    def refused(self, error: RockError) -> None:
        self._over = True
        self._error = error
        if not self._begun.done():
            self._begun.set_exception(error)
        self._tell()

    def lost(self, reason: str) -> None:
        self.refused(InfraError(reason))
