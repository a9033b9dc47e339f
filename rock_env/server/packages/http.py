"""The mirror's port: HTTP/1.1 for GET and HEAD of its own paths, and nothing else. It is no proxy and tunnels nothing.

Used by `mirror`. What a stranger sends is at most one head of 16 KiB at a time, within seconds; connections are counted by
address. It knows no index.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import BinaryIO

from rock_env.errors import InfraError, InvalidArgument, RockError, Unavailable, Unimplemented
from rock_env.server.packages.bounds import FetchLimits
from rock_env.server.packages.reply import Page, Reply
from rock_env.server.packages.upstream import aside

__all__ = ["Port"]

log = logging.getLogger(__name__)

_HEAD_BYTES = 16 << 10
_BLOCK_BYTES = 256 << 10
_REASONS = {200: "OK", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found", 405: "Method Not Allowed"}
_REASONS |= {429: "Too Many Requests", 500: "Internal Server Error", 502: "Bad Gateway"}
_REASONS |= {503: "Service Unavailable", 507: "Insufficient Storage"}

Answer = Callable[[str], AbstractAsyncContextManager[Reply]]
"""Takes a path as it came; what it gives holds for the time of the block."""


class NotAllowed(Unimplemented):
    """Another method than GET and HEAD."""

    http = 405


@dataclass(frozen=True, slots=True)
class _Head:
    method: str
    path: str
    stays: bool
    """The connection may be used again."""


class Port:
    """Listens, and sends what `answer` gives."""

    def __init__(self, answer: Answer, limits: FetchLimits) -> None:
        self._answer = answer
        self._limits = limits
        self._open: Counter[str] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def listening(self, host: str, port: int) -> AsyncIterator[int]:
        """Serve for the time of the block; yield the port. Raise `Unavailable` where it cannot listen."""
        try:
            server = await asyncio.start_server(self._connected, host, port, limit=_HEAD_BYTES, backlog=1024)
        except OSError as error:
            raise Unavailable(
                f"cannot serve packages at {host}:{port}: {error.strerror}. Is it taken, or another machine's address?"
            ) from error
        try:
            yield int(server.sockets[0].getsockname()[1])
        finally:
            server.close()
            for task in tuple(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = str(writer.get_extra_info("peername", ("?",))[0])
        task = asyncio.current_task()
        assert task is not None
        full = (
            self._open[peer] >= self._limits.connections or self._open.total() >= self._limits.all_connections
        )
        if full:
            writer.transport.abort()
            return
        self._open[peer] += 1
        self._tasks.add(task)
        try:
            # Cancelled by `listening` alone, and as its last act: Python 3.11 logs a cancelled handler as an error.
            with suppress(TimeoutError, ConnectionError, EOFError, asyncio.CancelledError):
                while await self._one(reader, writer):
                    pass
            with suppress(TimeoutError, ConnectionError, asyncio.CancelledError):
                writer.close()
                async with asyncio.timeout(self._limits.stall_s):
                    await writer.wait_closed()
        finally:
            self._tasks.discard(task)
            self._open[peer] -= 1
            if not self._open[peer]:
                del self._open[peer]
            writer.transport.abort()  # what its peer has not read by now is not kept for it

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; return whether there may be another."""
        head = None
        reply: RockError
        try:
            async with asyncio.timeout(self._limits.head_s):
                raw = await reader.readuntil(b"\r\n\r\n")
            head = _read(raw)
        except asyncio.LimitOverrunError:
            reply = InvalidArgument("the head of the request is too long")
        except RockError as error:
            reply = error
        stays = head is not None and head.stays
        async with asyncio.timeout(self._limits.request_s):
            if head is None:
                await _send(writer, reply, sends=True, stays=False)
            else:
                await self._reply(writer, head)
            await writer.drain()
        return stays

    async def _reply(self, writer: asyncio.StreamWriter, head: _Head) -> None:
        began = False
        try:
            async with self._answer(head.path) as reply:
                began = True
                await _send(writer, reply, sends=head.method == "GET", stays=head.stays)
        except RockError as error:
            if began:
                raise
            path = head.path[1:].partition("/")[2]  # without the pass
            log.info("no package path=%.200r code=%s cause=%s", path, error.code, error)
            await _send(writer, error, sends=head.method == "GET", stays=head.stays)


def _read(raw: bytes) -> _Head:
    """Return what a request asks for. Raise `InvalidArgument` or `NotAllowed`."""
    lines = raw.decode("latin-1").split("\r\n")
    words = lines[0].split(" ")
    if len(words) != 3 or words[2] not in ("HTTP/1.1", "HTTP/1.0"):
        raise InvalidArgument("this port speaks HTTP/1.1")
    if words[0] not in ("GET", "HEAD"):
        raise NotAllowed("the package mirror answers GET and HEAD")
    if not words[1].startswith("/"):
        raise InvalidArgument("this is no proxy: ask for a path of the mirror")
    headers = [
        (name.strip().lower(), value.strip().lower())
        for name, _, value in (line.partition(":") for line in lines[1:])
    ]
    for name, value in headers:
        if name == "transfer-encoding" or (name == "content-length" and value != "0"):
            raise InvalidArgument("the package mirror takes no body")
    closes = any(name == "connection" and "close" in value for name, value in headers)
    return _Head(words[0], words[1], words[2] == "HTTP/1.1" and not closes)


async def _send(writer: asyncio.StreamWriter, reply: Reply | RockError, *, sends: bool, stays: bool) -> None:
    more = ""
    status, kind = 200, "application/octet-stream"
    if isinstance(reply, RockError):
        status, kind = _status(reply), "text/plain; charset=utf-8"
        content: Page | BinaryIO = Page(f"{reply.message}\n".encode(), kind)
        if reply.retry_after_s is not None:
            more = f"Retry-After: {max(1, round(reply.retry_after_s))}\r\n"
    else:
        content = reply
        kind = reply.kind if isinstance(reply, Page) else kind
    size = await aside(content.size if isinstance(content, Page) else partial(_size, content))
    writer.write(
        f"HTTP/1.1 {status} {_REASONS.get(status, 'Error')}\r\nContent-Type: {kind}\r\nContent-Length: {size}\r\n"
        f"X-Content-Type-Options: nosniff\r\n{more}Connection: {'keep-alive' if stays else 'close'}\r\n\r\n".encode()
    )
    if not sends:
        return
    if isinstance(content, Page):
        for block in content.blocks(_BLOCK_BYTES):
            writer.write(block)
            await writer.drain()
        return
    while block := await aside(content.read, _BLOCK_BYTES):
        writer.write(block)
        await writer.drain()


def _size(opened: BinaryIO) -> int:
    size = opened.seek(0, 2)
    opened.seek(0)
    return size


def _status(error: RockError) -> int:
    """Return 502 for what upstream did wrong."""
    return 502 if type(error) is InfraError else error.http
