"""A relay before a server, whose connections a test cuts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from round_robin import connected


class Relay:
    """A socket between client and server whose connections can be cut, and kept from coming back."""

    def __init__(self, folder: Path, server: str) -> None:
        self.address = f"unix://{folder}/relay"
        self.connections = 0
        self._server = server
        self._writers: set[asyncio.StreamWriter] = set()
        self._relaying: set[asyncio.Task[None]] = set()
        self.refusing = False

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Relay]:
        """Relay in the block; no connection is open afterwards."""
        async with await asyncio.start_unix_server(
            self._accept, self.address.removeprefix("unix://")
        ) as listener:
            try:
                yield self
            finally:
                self.refusing = True
                listener.close()
                self.cut()
                for _ in range(5):
                    await asyncio.sleep(0)  # what was accepted a moment ago gets its task
                await asyncio.gather(*self._relaying, return_exceptions=True)

    def cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._relaying.add(task)
        try:
            if not self.refusing:
                self.connections += 1
                await self._relay(reader, writer)
        finally:
            await _aborted(writer)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there_writer = await connected(self._server)
        self._writers |= {writer, there_writer}

        async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
            try:
                while data := await source.read(65536):
                    sink.write(data)
                    await sink.drain()
            except ConnectionError:
                pass
            finally:
                sink.close()

        try:
            if not self.refusing:
                await asyncio.gather(pump(reader, there_writer), pump(there_reader, writer))
        finally:
            await _aborted(there_writer)


async def _aborted(writer: asyncio.StreamWriter) -> None:
    """Cut a connection and wait until its socket is closed."""
    writer.transport.abort()
    with suppress(ConnectionError):
        await writer.wait_closed()
