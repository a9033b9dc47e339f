"""The HTTP end of a request: its headers, its body as it comes, and whether somebody still waits for the answer.

Used by the REST face. It knows no call and no message.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from typing import Any

from starlette.requests import Request

from rock_env.errors import InvalidArgument, Unauthenticated
from rock_env.server.interceptors.held import Share
from rock_env.wire.bodies import BOUND

__all__ = [
    "BEARER",
    "Gone",
    "TooLarge",
    "answered",
    "blocks",
    "body",
    "content_type",
    "lines",
    "metadata_of",
    "once",
    "timeout_s",
]

BEARER = "rock.v1.bearer."
"""How the subprotocol begins that a browser offers a WebSocket to show its token."""
_PASSED = ("authorization", "traceparent", "tracestate")


class TooLarge(InvalidArgument):
    """A body beyond the limit."""

    http = 413


class WrongType(InvalidArgument):
    """A body of another type than the call takes. It also keeps web pages of strangers from posting forms here."""

    http = 415


class Gone(Exception):
    """The client hung up."""


async def answered(call: Any, request: Request) -> Any:
    """Wait for a unary call; cancel it if the client goes away meanwhile."""

    async def gone() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        call.cancel()

    watch = asyncio.ensure_future(gone())
    try:
        return await call
    except asyncio.CancelledError:
        if watch.done():
            raise Gone from None
        call.cancel()
        raise
    finally:
        watch.cancel()


def metadata_of(headers: Any) -> tuple[tuple[str, str], ...]:
    """Return the headers that a gRPC call carries on. Raise `Unauthenticated` for one it cannot carry."""
    passed = []
    for name in _PASSED:
        for value in headers.getlist(name):
            if not (value.isascii() and value.isprintable()):
                raise Unauthenticated(f"malformed {name} header: expected printable ASCII")
            passed.append((name, value))
    return tuple(passed)


def timeout_s(request: Request) -> float | None:
    """Return the deadline that the header `rock-timeout-s` sets. Raise `InvalidArgument` for no number."""
    text = request.headers.get("rock-timeout-s")
    if text is None:
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < 1e9:
        raise InvalidArgument(f"header rock-timeout-s must be a positive number of seconds, got {text!r}")
    return seconds


def content_type(request: Request, allowed: tuple[str, ...]) -> str:
    """Return the body's type. Raise `InvalidArgument` (415) unless it is allowed or there is no body."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if (
        allowed
        and kind not in allowed
        and not (kind == "" and request.headers.get("content-length", "0") == "0")
    ):
        raise WrongType(f"the body must be {' or '.join(allowed)}, got content-type {kind!r}")
    return kind


async def blocks(request: Request) -> AsyncIterator[bytes]:
    """Yield the body as it comes. Raise `Gone` when the client hangs up."""
    while True:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise Gone
        if message.get("body"):
            yield message["body"]
        if not message.get("more_body"):
            return


async def body(request: Request, limit: int, share: Share | None = None) -> bytes:
    """Return the whole body. Raise `InvalidArgument` (413) for one beyond the limit, before it is read where it says so.

    What it holds counts in `share`, which may raise `ResourceExhausted`.
    """
    said = request.headers.get("content-length", "")
    if said.isascii() and said.isdigit() and int(said[:20]) > limit:
        raise _too_large("the body", limit)
    if bound := request.scope.get("state", {}).get(BOUND):
        bound(limit)
    content = bytearray()
    async for block in blocks(request):
        content += block
        if len(content) > limit:
            raise _too_large("the body", limit)
        if share is not None:
            share.hold(len(content))
    return bytes(content)


def _too_large(what: str, limit: int) -> TooLarge:
    return TooLarge(
        f"{what} is larger than {limit} bytes. Send what is large as raw bytes or in several messages."
    )


async def once(request: Request, limit: int, share: Share) -> AsyncIterator[bytes]:
    """Yield the whole body, as the only line."""
    yield await body(request, limit, share)


async def lines(request: Request, limit: int, share: Share) -> AsyncIterator[bytes]:
    """Yield the lines of a body as they come. Raise `InvalidArgument` (413) for one that is too long.

    What it holds counts in `share`, which may raise `ResourceExhausted`.
    """
    rest = bytearray()
    async for block in blocks(request):
        rest += block
        share.hold(len(rest))
        *lines, last = rest.split(b"\n") if b"\n" in block else (rest,)
        rest = bytearray(last)
        for line in lines:
            if len(line) > limit:
                raise _too_large("a line of the body", limit)
            if line.strip():
                yield bytes(line)
        if len(rest) > limit:
            raise _too_large("a line of the body", limit)
    if rest.strip():
        yield bytes(rest)
