"""A connection that fails on request: a relay of unix sockets that can cut, stall or pass.

Stands between the callers and the server in the fault harness. It never looks into the bytes.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Self

BLOCK = 1 << 16


class FaultyLink:
    """Relays every connection to `path` on to `server`. Enter it on the event loop."""

    def __init__(self, path: Path, server: Path) -> None:
        self.path = path
        self._server = server
        self._flows = asyncio.Event()
        self._flows.set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._listener = await asyncio.start_unix_server(self._accept, str(self.path))
        return self

    async def __aexit__(self, *_: object) -> None:
        self._listener.close()
        self.cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> None:
        """Drop every connection, in whatever state it is."""
        for writer in tuple(self._writers):
            writer.transport.abort()

    async def stall(self, seconds: float) -> None:
        """Leave every connection half open: bytes are taken and go nowhere until the time is over; then all are cut."""
        self._flows.clear()
        await asyncio.sleep(seconds)
        self.cut()
        self._flows.set()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.add(writer)
        try:
            there_reader, there = await asyncio.open_unix_connection(str(self._server))
        except OSError:  # no server: the caller is told by a closed connection
            self._forget(task, writer)
            return
        self._writers.add(there)
        try:
            with suppress(asyncio.CancelledError):  # the listener's own task must end quietly
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._relay(reader, there))
                    group.create_task(self._relay(there_reader, writer))
        finally:
            self._forget(task, writer, there)

    def _forget(self, task: asyncio.Task[None], *writers: asyncio.StreamWriter) -> None:
        self._tasks.discard(task)
        for writer in writers:
            self._writers.discard(writer)
            writer.transport.abort()

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while block := await reader.read(BLOCK):
                await self._flows.wait()
                writer.write(block)
                await writer.drain()
        writer.transport.abort()
