"""What a streaming call looks like over HTTP: server-sent events, or the raw bytes of a file with ranges.

Used by the gateway. It reads a message when the one before is sent, and ends the call when the client is gone.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Mapping
from typing import Any

import grpc
from starlette.requests import Request
from starlette.responses import Response

from rock_env.arguments import shown
from rock_env.errors import InvalidArgument, RockError
from rock_env.proto.v1 import sandbox_pb2 as pb
from rock_env.server.rest.codec import dump, event_id, problem_body, rock_error
from rock_env.server.rest.request import Gone, answered, metadata_of
from rock_env.wire.rest_routes import Method

__all__ = ["EventBlocks", "RawBlocks", "StreamedCall", "byte_range"]

_QUIET_S = 15.0
"""A comment is sent when nothing was for so long, so that proxies and both ends see that the other lives."""
_RANGE = re.compile(r"bytes=([0-9]*)-([0-9]*)")
_MOST_DIGITS = 20
"""A number of so many is behind the end of every file."""


class EventBlocks:
    """Server-sent events: one per message, `event: error` with a problem, `event: end` where all went well."""

    media_type = "text/event-stream"
    quiet = b": still here\n\n"

    def __init__(self, method: Method, reached: dict[str, int]) -> None:
        self._ids = method.route.ids
        self._reached = reached

    def block(self, message: Any) -> bytes:
        """Write one message."""
        name = f"id: {event_id(self._ids, message, self._reached)}\n".encode() if self._ids else b""
        return name + b"data: " + dump(message) + b"\n\n"

    def end(self) -> bytes:
        """Write the end of a call that went well."""
        return b"event: end\ndata: {}\n\n"

    def error(self, error: RockError) -> bytes | None:
        """Write the end of a call that failed."""
        return b"event: error\ndata: " + json.dumps(problem_body(error)).encode() + b"\n\n"


class RawBlocks:
    """A body of bytes: the field of each message that the route names."""

    media_type = "application/octet-stream"
    quiet = b""

    def __init__(self, method: Method) -> None:
        self._field = method.route.raw

    def block(self, message: Any) -> bytes:
        """Write one message."""
        return bytes(getattr(message, self._field))

    def end(self) -> bytes:
        """Write nothing: the end of the body says it."""
        return b""

    def error(self, _: RockError) -> bytes | None:
        """Return None: the connection is cut, so that nobody takes a part for the whole."""
        return None


class StreamedCall(Response):
    """The response that a streaming call's messages make. `first` is its first read, which may be done already."""

    def __init__(
        self,
        call: Any,
        first: asyncio.Future[Any],
        blocks: EventBlocks | RawBlocks,
        *,
        pump: asyncio.Task[None] | None = None,
        status: int = 200,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._call = call
        self._next: asyncio.Future[Any] = first
        self._blocks = blocks
        self._pump = pump
        self.status_code = status
        self.media_type = blocks.media_type
        self.background = None
        self.body = b""
        self.init_headers({"cache-control": "no-store", "x-accel-buffering": "no", **(headers or {})})
        if isinstance(blocks, RawBlocks) and "accept-ranges" not in self.headers:
            self.headers["accept-ranges"] = "bytes"
        if status != 206:
            del self.headers["content-length"]

    def end(self) -> None:
        """End the call and whatever feeds it."""
        self._call.cancel()
        self._next.cancel()
        if self._next.done() and not self._next.cancelled():
            self._next.exception()  # seen
        if self._pump is not None:
            self._pump.cancel()

    def wrong_input(self) -> RockError | Gone | None:
        """Return what was wrong with the request's body, or that its sender left, where that ended the call."""
        if self._pump is None or not self._pump.done() or self._pump.cancelled():
            return None
        error = self._pump.exception()
        return error if isinstance(error, RockError | Gone) else None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Send the messages until they end or the client is gone."""
        gone = asyncio.ensure_future(self._until_gone(receive))
        try:
            await send(
                {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
            )
            complete = True
            async for block in self._all():
                if block is None:
                    complete = False
                else:
                    await send({"type": "http.response.body", "body": block, "more_body": True})
            if complete:
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        except asyncio.CancelledError:
            if not gone.done():
                raise
        finally:
            self.end()
            gone.cancel()

    async def _until_gone(self, receive: Any) -> None:
        """Cancel the call when the client hangs up; while its body is still read, the pump is who notices."""
        if self._pump is not None:
            await asyncio.wait({self._pump})
        while (await receive())["type"] != "http.disconnect":
            pass
        self._call.cancel()

    async def _all(self) -> AsyncIterator[bytes | None]:
        """Yield what to send; None where the body must not end well."""
        try:
            while True:
                while not self._next.done():
                    await asyncio.wait({self._next}, timeout=_QUIET_S)
                    if not self._next.done() and self._blocks.quiet:
                        yield self._blocks.quiet
                message = self._next.result()
                if message is grpc.aio.EOF:
                    yield self._blocks.end()
                    return
                yield self._blocks.block(message)
                self._next = asyncio.ensure_future(self._call.read())
        except grpc.aio.AioRpcError as failure:
            yield self._blocks.error(rock_error(failure))
        except asyncio.CancelledError:
            wrong = self.wrong_input()
            if wrong is None:
                raise
            yield None if isinstance(wrong, Gone) else self._blocks.error(wrong)


class OutOfRange(InvalidArgument):
    """A range that starts behind the end of the file."""

    http = 416


def _place(digits: str) -> int:
    """Return a place in a file; all that no file reaches are one, however many digits they have."""
    return int(digits.lstrip("0")[:_MOST_DIGITS] or "0")


async def byte_range(stat_call: Any, message: Any, request: Request) -> tuple[int, dict[str, str]]:
    """Put the `Range` header into a ReadFile request; return the status and headers of its answer.

    Raise `InvalidArgument` for a range behind the file's end. Several ranges, or another unit, are ignored (RFC 9110), and
    so is a range of a symbolic link: a Stat knows the link's own size alone.
    """
    matched = _RANGE.fullmatch(request.headers["range"].strip())
    if matched is None or matched.groups() == ("", ""):
        return 200, {}
    stat = pb.StatRequest(sandbox_id=message.sandbox_id, path=message.path)
    call = stat_call(stat, metadata=metadata_of(request.headers))
    file = await answered(call, request)
    if file.symlink_target:
        return 200, {}
    size = file.size
    if matched[1]:
        start, end = _place(matched[1]), min(_place(matched[2] or str(size)), size - 1)
    else:
        start, end = max(0, size - _place(matched[2])), size - 1
    if start > end:
        raise OutOfRange(f"range {shown(request.headers['range'])} is outside a file of {size} bytes")
    message.offset, message.length = start, end - start + 1
    return 206, {
        "content-range": f"bytes {start}-{end}/{size}",
        "content-length": str(end - start + 1),
        "accept-ranges": "bytes",
    }
