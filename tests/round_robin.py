"""A TCP proxy that gives each connection the next of several servers, as a load balancer does."""

from __future__ import annotations

import asyncio
import itertools
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress

HOSTS = ("127.0.0.1", "127.0.0.2", "127.0.0.3")
"""Where the proxy listens: a gRPC channel to all three has three connections and gives each call the next one."""


async def connected(address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to a server by its address, such as unix:///path, host:port or http://host:port."""
    if address.startswith("unix://"):
        return await asyncio.open_unix_connection(address.removeprefix("unix://"))
    host, _, port = address.rpartition("/")[2].rpartition(":")
    return await asyncio.open_connection(host, int(port))


@asynccontextmanager
async def round_robin(servers: Callable[[], Sequence[str]]) -> AsyncIterator[int]:
    """Listen at one port of each of `HOSTS`, and yield it; `servers` returns the addresses of those that live now.

    A server that refuses is passed over, so a client meets a dead one only in the connections it had.
    """
    turn = itertools.count()
    relaying: set[asyncio.Task[None]] = set()

    async def next_one() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        living = servers()
        for _ in living:
            with suppress(ConnectionError):
                return await connected(living[next(turn) % len(living)])
        raise ConnectionError("no server answers")

    async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await source.read(1 << 16):
                sink.write(data)
                await sink.drain()
        sink.close()

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        relaying.add(task)
        task.add_done_callback(relaying.discard)
        try:
            there_reader, there_writer = await next_one()
        except ConnectionError:
            writer.transport.abort()
            return
        with suppress(asyncio.CancelledError):  # at the end of the block
            await asyncio.gather(pump(reader, there_writer), pump(there_reader, writer))

    with socket.socket() as probe:
        probe.bind((HOSTS[0], 0))
        port = probe.getsockname()[1]
    listener = await asyncio.start_server(relay, list(HOSTS), port)
    try:
        yield port
    finally:
        listener.close()
        for task in tuple(relaying):
            task.cancel()
        await asyncio.gather(*relaying, return_exceptions=True)
