"""A connection to a port of a box as an HTTP library wants it, carried by our own Dial call.

Used by the proxy. It reads the next bytes when the last ones were taken, so flow control reaches from end to end.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import httpcore
from starlette.requests import Request

from rock_env.proto.v1 import sandbox_pb2 as pb

__all__ = ["DialStream", "Dialling"]

_BLOCK_BYTES = 256 << 10


class DialStream(httpcore.AsyncNetworkStream):
    """The bytes of one connection."""

    def __init__(self, call: Any) -> None:
        self._call = call
        self._rest = b""

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Return the next bytes; empty at the end."""
        while not self._rest:
            reply = await self._call.read()
            if reply is grpc.aio.EOF:
                return b""
            self._rest = reply.data
        data, self._rest = self._rest[:max_bytes], self._rest[max_bytes:]
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Send bytes; waits while the other end does not take them."""
        for start in range(0, len(buffer), _BLOCK_BYTES):
            try:
                await self._call.write(pb.DialRequest(data=buffer[start : start + _BLOCK_BYTES]))
            except (asyncio.InvalidStateError, grpc.aio.AioRpcError) as error:
                raise httpcore.WriteError("the connection was closed by the sandbox") from error

    async def end(self) -> None:
        """Send no more."""
        await self._call.done_writing()

    async def aclose(self) -> None:
        """Drop the connection."""
        self._call.cancel()


class Dialling(httpcore.AsyncNetworkBackend):
    """Opens connections to one port of one box."""

    def __init__(self, dial: Any, sandbox_id: str, port: int, token: str) -> None:
        self._dial = dial
        self._start = pb.DialRequest(start=pb.DialStart(sandbox_id=sandbox_id, port=port))
        self.metadata = (("authorization", f"Bearer {token}"),)
        self._streams: list[DialStream] = []
        self.port = port

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> DialStream:
        """Open a connection. Raise `AioRpcError` where nothing listens, or nobody may."""
        call = self._dial(metadata=self.metadata)
        try:
            await call.write(self._start)
            if await call.read() is grpc.aio.EOF:
                raise httpcore.ConnectError("the server closed the connection")
        except BaseException:
            call.cancel()
            raise
        stream = DialStream(call)
        self._streams.append(stream)
        return stream

    @asynccontextmanager
    async def while_listening(self, request: Request) -> AsyncIterator[None]:
        """Drop the connections when the client goes away during the block."""

        async def watch() -> None:
            while (await request.receive())["type"] != "http.disconnect":
                pass
            for stream in self._streams:
                await stream.aclose()

        watching = asyncio.ensure_future(watch())
        try:
            yield
        finally:
            watching.cancel()

    @asynccontextmanager
    async def as_socket(self) -> AsyncIterator[socket.socket]:
        """Yield a socket that leads to the port, for a library that takes nothing else."""
        stream = await self.connect_tcp("127.0.0.1", self.port)
        theirs, ours = socket.socketpair()
        reader, writer = await asyncio.open_connection(sock=ours)

        async def into_box() -> None:
            while data := await reader.read(_BLOCK_BYTES):
                await stream.write(data)
            await stream.end()

        async def out_of_box() -> None:
            while data := await stream.read(_BLOCK_BYTES):
                writer.write(data)
                await writer.drain()
            writer.write_eof()

        pumps = [asyncio.ensure_future(into_box()), asyncio.ensure_future(out_of_box())]
        try:
            yield theirs
        finally:
            await stream.aclose()
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            writer.close()
            theirs.close()
