"""A relay before a server, whose connections a test cuts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
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
        listener = await asyncio.start_unix_server(self._relay, self.address.removeprefix("unix://"))
        async with listener:
            yield self
            self.refusing = True
            self.cut()
            await asyncio.gather(*self._relaying, return_exceptions=True)

    def cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.refusing:
            writer.transport.abort()
            return
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._relaying.add(task)
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
            await asyncio.gather(pump(reader, there_writer), pump(there_reader, writer))
        finally:
            writer.transport.abort()
            there_writer.transport.abort()
