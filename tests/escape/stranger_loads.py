"""What callers without a token can load a server with: bodies, floods of HTTP/2 frames, heads and handshakes that never end.

Used by `tests/escape/test_stranger_loads.py` and by `benchmarks/strangers.py`. Each load goes on until its time is over and
returns how many answers it got, and how many of them were no refusal. Frames are written by hand, since no HTTP/2
library sends what a stranger may.
"""

from __future__ import annotations

import asyncio
import itertools
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial

import grpc

__all__ = ["LOADS", "Doors", "Heard", "Load", "frame", "headers_of"]

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
CREATE, CHECK, WATCH = (
    "/rock.v1.SandboxService/Create",
    "/grpc.health.v1.Health/Check",
    "/grpc.health.v1.Health/Watch",
)
BODY_BYTES = 4 << 20
BODIES = 400
HALVES = 300
_OPEN_S = 5.0
_BLOCK = bytes(1 << 16)


@dataclass(frozen=True, slots=True)
class Doors:
    """The addresses of a server, HOST:PORT; empty where it has no such door."""

    grpc: str
    http: str
    grpc_tls: str = ""
    http_tls: str = ""
    metrics: str = ""
    gateway: str = ""


class Heard(Counter[str]):
    """Answers by status."""

    @property
    def let_in(self) -> int:
        """How many were no refusal."""
        closed = {"UNAUTHENTICATED", "RESOURCE_EXHAUSTED", "UNAVAILABLE", "CANCELLED", "DEADLINE_EXCEEDED"}
        return sum(
            count
            for said, count in self.items()
            if said not in closed and not said.startswith(("4", "502", "503", "closed", "answered"))
        )


Load = Callable[[Doors, float], Awaitable[Heard]]


# -- bytes of HTTP/2


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """Return one frame (RFC 9113, 4.1)."""
    return len(payload).to_bytes(3) + bytes([kind, flags]) + stream.to_bytes(4) + payload


def _field(name: bytes, value: bytes) -> bytes:
    return b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value  # literal, shorter than 127


def headers_of(path: str, more: Sequence[tuple[bytes, bytes]] = ()) -> bytes:
    """Return the header block of a call of gRPC."""
    fields = [(b":method", b"POST"), (b":scheme", b"http"), (b":path", path.encode()), (b":authority", b"x")]
    fields += [(b"te", b"trailers"), (b"content-type", b"application/grpc"), *more]
    return b"".join(itertools.starmap(_field, fields))


OPENING = PREFACE + frame(4, 0, 0)
WIDE = PREFACE + frame(4, 0, 0, b"\0\4\x7f\xff\xff\xff") + frame(8, 0, 0, (0x7FFF0000).to_bytes(4))
"""An opening that lets the server send as much as it likes."""
_HEADERS = headers_of(CREATE)


def _streams() -> Iterator[int]:
    return iter(range(1, 1 << 31, 2))


def _settings(_: Iterator[int]) -> bytes:
    return frame(4, 0, 0, b"\0\4\0\1\0\0") * 200


def _pings(_: Iterator[int]) -> bytes:
    return frame(6, 0, 0, bytes(8)) * 200


def _resets(streams: Iterator[int]) -> bytes:
    return b"".join(
        frame(1, 4, one, _HEADERS) + frame(3, 0, one, (8).to_bytes(4))
        for one in itertools.islice(streams, 50)
    )


def _heads(streams: Iterator[int]) -> bytes:
    return b"".join(frame(1, 4, one, _HEADERS) for one in itertools.islice(streams, 50))


def _calls(streams: Iterator[int]) -> bytes:
    return b"".join(
        frame(1, 4, one, _HEADERS) + frame(0, 1, one, bytes(5)) for one in itertools.islice(streams, 50)
    )


def _watches(streams: Iterator[int]) -> bytes:
    head = headers_of(WATCH)
    return b"".join(
        frame(1, 4, one, head) + frame(0, 1, one, bytes(5)) for one in itertools.islice(streams, 50)
    )


def _datas(streams: Iterator[int]) -> bytes:
    one = next(streams)
    return frame(1, 4, one, _HEADERS) + frame(0, 0, one) * 200


def _continuations(streams: Iterator[int]) -> bytes:
    more = _field(b"x-more", bytes(b"a" * 100)) * 140
    first = next(streams)
    start = frame(1, 0, first, _HEADERS) if first == 1 else b""
    return start + frame(9, 0, 1, more) * 4


# -- connections


@asynccontextmanager
async def _opened(
    address: str, tls: bool = False
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    host, _, port = address.rpartition(":")
    context = None
    if tls:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    async with asyncio.timeout(_OPEN_S):
        reader, writer = await asyncio.open_connection(host, int(port), ssl=context)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def _read_all(reader: asyncio.StreamReader) -> None:
    while await reader.read(1 << 16):
        pass


async def _until(seconds: float, count: int, act: Callable[[int], Awaitable[str]]) -> Heard:
    """Do `count` acts side by side, each again and again for so long; return what each ended with."""
    heard = Heard()

    async def one(number: int) -> None:
        while True:
            try:
                heard[await act(number)] += 1
            except (OSError, EOFError, TimeoutError):
                heard["closed"] += 1
                await asyncio.sleep(0.05)

    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await asyncio.gather(*(one(number) for number in range(count)))
    return heard


# -- loads


async def _grpc_bodies(doors: Doors, seconds: float, *, connections: int, path: str = CREATE) -> Heard:
    """400 calls of 4 MiB at a time."""
    options = [("grpc.use_local_subchannel_pool", 1)]
    channels = [grpc.aio.insecure_channel(doors.grpc, options=options) for _ in range(connections)]
    body = b"\x0a\xfc\xff\xff\x01" + bytes(BODY_BYTES - 4)  # as a message, one field of zeros

    async def act(number: int) -> str:
        try:
            await channels[number % connections].unary_unary(path)(body, timeout=max(seconds, 2.0))
        except grpc.aio.AioRpcError as error:
            await asyncio.sleep(0.001)
            return str(error.code().name)
        return "answered" if path == CHECK else "OK"  # health is for everybody

    try:
        return await _until(seconds, BODIES, act)
    finally:
        for channel in channels:
            await channel.close()


async def _http_bodies(
    doors: Doors, seconds: float, *, connections: int, head: str, door: str = "http", chunked: bool = False
) -> Heard:
    """Bodies of 4 MiB, as much of each as the server takes."""
    length = "transfer-encoding: chunked" if chunked else f"content-length: {BODY_BYTES}"
    start = f"{head}\r\nhost: x\r\n{length}\r\n\r\n".encode()
    block = b"10000\r\n" + _BLOCK + b"\r\n" if chunked else _BLOCK

    async def act(_: int) -> str:
        async with _opened(getattr(doors, door)) as (reader, writer):

            async def send() -> None:
                with suppress(OSError):
                    writer.write(start)
                    for _ in range(BODY_BYTES // len(_BLOCK)):
                        writer.write(block)
                        await writer.drain()

            sending = asyncio.ensure_future(send())
            try:
                return (await reader.readuntil(b"\r\n"))[9:12].decode()
            finally:
                sending.cancel()

    return await _until(seconds, connections, act)


async def _flood(
    doors: Doors,
    seconds: float,
    *,
    frames: Callable[[Iterator[int]], bytes],
    reads: bool,
    connections: int = 40,
    opening: bytes = OPENING,
) -> Heard:
    """Frames without an end, from a client that reads what comes back, or does not."""

    async def act(_: int) -> str:
        async with _opened(doors.grpc) as (reader, writer):
            writer.write(opening)
            reading = asyncio.ensure_future(_read_all(reader)) if reads else None
            streams = _streams()
            try:
                while True:
                    writer.write(frames(streams))
                    await writer.drain()
                    await asyncio.sleep(0)
            finally:
                if reading is not None:
                    reading.cancel()

    return await _until(seconds, connections, act)


async def _halves(
    doors: Doors, seconds: float, *, door: str, said: bytes, count: int = HALVES, tls: bool = False
) -> Heard:
    """Connections that say a little and no more."""

    async def act(_: int) -> str:
        async with _opened(getattr(doors, door), tls) as (reader, writer):
            writer.write(said)
            await _read_all(reader)
            return "closed"

    return await _until(seconds, count, act)


async def _unread(
    doors: Doors, seconds: float, *, door: str, request: bytes, connections: int = HALVES
) -> Heard:
    """Requests, one after the other, whose answers nobody reads."""

    async def act(_: int) -> str:
        async with _opened(getattr(doors, door)) as (_reader, writer):
            _reader._transport.pause_reading()  # type: ignore[attr-defined]
            while True:
                writer.write(request * 20)
                await writer.drain()
                await asyncio.sleep(0.01)

    return await _until(seconds, connections, act)


def client_hello() -> bytes:
    """Return the first flight of a TLS handshake."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.create_default_context()
    context.set_alpn_protocols(["h2"])
    with suppress(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing, server_hostname="localhost").do_handshake()
    return outgoing.read()


_JSON = "\r\ncontent-type: application/json"
_UPGRADE = (
    b"GET /v1/sandboxes/sb-0123456789abcdef/exec HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n"
    b"sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
_FRAME = b"\x82\xff" + (BODY_BYTES).to_bytes(8) + bytes(4)
_HALF_HEAD = b"POST /v1/sandboxes HTTP/1.1\r\nhost: x\r\nx-slow: a"

LOADS: dict[str, Load] = {
    **{f"grpc bodies over {n}": partial(_grpc_bodies, connections=n) for n in (1, 40, 400)},
    **{
        f"rest bodies over {n}": partial(
            _http_bodies, connections=n, head=f"POST /v1/sandboxes HTTP/1.1{_JSON}"
        )
        for n in (1, 40, 400)
    },
    "rest chunked bodies": partial(
        _http_bodies,
        connections=40,
        chunked=True,
        head="PUT /v1/sandboxes/sb-0123456789abcdef/file?path=f HTTP/1.1",
    ),
    "e2b bodies": partial(_http_bodies, connections=40, head=f"POST /e2b/sandboxes HTTP/1.1{_JSON}"),
    "health bodies": partial(_grpc_bodies, connections=40, path=CHECK),
    "health watches": partial(_flood, frames=_watches, reads=True),
    "settings": partial(_flood, frames=_settings, reads=True),
    "settings unread": partial(_flood, frames=_settings, reads=False),
    "pings": partial(_flood, frames=_pings, reads=True),
    "pings unread": partial(_flood, frames=_pings, reads=False),
    "rapid reset": partial(_flood, frames=_resets, reads=True),
    "rapid reset unread": partial(_flood, frames=_resets, reads=False),
    "heads of streams": partial(_flood, frames=_heads, reads=True),
    "calls unread": partial(_flood, frames=_calls, reads=False, opening=WIDE),
    "empty data": partial(_flood, frames=_datas, reads=True),
    "continuation": partial(_flood, frames=_continuations, reads=True),
    "half prefaces": partial(_halves, door="grpc", said=PREFACE[:10]),
    "half heads of streams": partial(
        _halves, door="grpc", said=OPENING + frame(1, 0, 1, _HEADERS), count=400
    ),
    "half heads": partial(_halves, door="http", said=_HALF_HEAD),
    "half handshakes of grpc": partial(_halves, door="grpc_tls", said=client_hello()),
    "half handshakes of rest": partial(_halves, door="http_tls", said=client_hello()),
    "idle connections": partial(_halves, door="grpc", said=OPENING, count=1000),
    "idle connections of rest": partial(_halves, door="http", said=b"", count=1000),
    "websockets": partial(_halves, door="http", said=_UPGRADE + _FRAME + bytes(1 << 20), count=100),
    "unread documents": partial(
        _unread, door="http", request=b"GET /openapi.json HTTP/1.1\r\nhost: x\r\n\r\n"
    ),
    "half requests for metrics": partial(
        _halves, door="metrics", said=b"GET /metrics HTTP/1.1\r\nx: " + b"a" * 60_000
    ),
    "gateway bodies": partial(
        _http_bodies, connections=400, door="gateway", head=f"POST /v1/chat/completions HTTP/1.1{_JSON}"
    ),
    "gateway half heads": partial(_halves, door="gateway", said=_HALF_HEAD),
}
"""By name. A load whose door a server has not is to be left out."""
