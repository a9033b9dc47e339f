"""A way to the gateway that sees what streams and can break an answer off, as a bad network does. Used by `agent_runs`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

__all__ = ["Front"]

_STREAM = b"content-type: text/event-stream"


class Front:
    """Carries connections from one unix socket to another."""

    def __init__(self, behind: Path, *, cut_at: str = "") -> None:
        self.streams = 0
        """Answers that came as streams."""
        self.cut = False
        """An answer was broken off."""
        self._behind = behind
        self._cut_at = cut_at.encode()
        """The first answer that has this breaks off right behind it."""

    @asynccontextmanager
    async def serving(self, path: Path) -> AsyncIterator[Path]:
        """Listen at `path`."""
        async with await asyncio.start_unix_server(self._serve, path):
            yield path

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner_writer = await asyncio.open_unix_connection(self._behind)
        ways = [
            asyncio.ensure_future(self._inward(inner_reader, writer)),
            asyncio.ensure_future(_outward(reader, inner_writer)),
        ]
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)
        writer.close()
        inner_writer.close()

    async def _inward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            self.streams += data.lower().count(_STREAM)
            if self._cut_at and not self.cut and self._cut_at in data:
                self.cut = True
                before, mark, _ = data.partition(self._cut_at)
                writer.write(before + mark)
                return
            writer.write(data)
            await writer.drain()


async def _outward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()
