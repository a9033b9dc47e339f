"""Room for so many bytes at once: whoever wants more than is left waits, the first come first."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

__all__ = ["ByteRoom"]


class ByteRoom:
    """Use only on one event loop."""

    def __init__(self, total: int) -> None:
        self._total = self._left = total
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @asynccontextmanager
    async def taken(self, size: int) -> AsyncIterator[None]:
        """Have `size` bytes, or all of them where there are fewer. None are had at once."""
        size = min(size, self._total)
        if size:
            await self._take(size)
        try:
            yield
        finally:
            self._left += size
            self._admit()

    async def _take(self, size: int) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((size, turn))
        self._admit()
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # its turn had come
                self._left += size
            self._admit()
            raise

    def _admit(self) -> None:
        while self._waiting:
            size, turn = self._waiting[0]
            if not turn.cancelled():
                if size > self._left:
                    return
                self._left -= size
                turn.set_result(None)
            self._waiting.popleft()
