"""What a stranger sends to the REST face is read a piece at a time, in turns, and not kept once they are gone."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse

from rock_env.server.options import ServerOptions
from rock_env.server.rest.app import serving
from rock_env.server.rest.connections import Connections, HttpConnection, admitted
from rock_env.server.rest.request import body
from rock_env.wire import arrivals

SENT = 1 << 20
PIECE = 16 << 10
WITHIN_S = 20.0
HEAD = b"POST /%s HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n"


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Refuse who shows no token, without a look at the body; answer others with its length."""
    if scope["path"] == "/known":
        admitted()
        await PlainTextResponse(str(len(await body(Request(scope, receive), SENT))))(scope, receive, send)
    else:
        await PlainTextResponse("who is it?", 401)(scope, receive, send)


async def said_to(url: str, path: bytes) -> tuple[bytes, asyncio.StreamWriter]:
    host, _, port = url.removeprefix("http://").rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(HEAD % (path, SENT) + bytes(SENT))
    async with asyncio.timeout(WITHIN_S):
        return await reader.readuntil(b"\r\n"), writer


@pytest.fixture
def pieces(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes of each piece that connections have read."""
    sizes: list[int] = []
    take = HttpConnection.data_received

    def noted(self: HttpConnection, data: bytes) -> None:
        sizes.append(len(data))
        take(self, data)

    monkeypatch.setattr(HttpConnection, "data_received", noted)
    return sizes


async def test_a_stranger_waits_for_a_turn_after_each_piece(
    pieces: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrivals, "_TURN_S", 600.0)
    async with serving(Connections(app), ServerOptions(http="127.0.0.1:0")) as url:
        line, writer = await said_to(url, b"unknown")
        assert line.startswith(b"HTTP/1.1 401")
        for _ in range(100):  # of the loop, which reads what it may
            await asyncio.sleep(0)
        assert len(pieces) <= 2  # uvicorn reads on once, when it has answered
        assert max(pieces) <= PIECE
        writer.transport.abort()


async def test_who_shows_a_token_waits_for_no_turn(
    pieces: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrivals, "_TURN_S", 600.0)
    async with serving(Connections(app), ServerOptions(http="127.0.0.1:0")) as url:
        line, writer = await said_to(url, b"known")
        assert line.startswith(b"HTTP/1.1 200")
        assert sum(pieces) > SENT
        assert max(pieces) > PIECE
        writer.transport.abort()


async def test_the_body_of_a_refused_stranger_is_still_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    taken, whole = 0, asyncio.Event()
    take = HttpConnection.data_received

    def noted(self: HttpConnection, data: bytes) -> None:
        nonlocal taken
        taken += len(data)
        if taken > SENT:
            whole.set()
        take(self, data)

    monkeypatch.setattr(HttpConnection, "data_received", noted)
    async with serving(Connections(app), ServerOptions(http="127.0.0.1:0")) as url:
        line, writer = await said_to(url, b"unknown")
        assert line.startswith(b"HTTP/1.1 401")
        async with asyncio.timeout(WITHIN_S):
            await whole.wait()
        writer.transport.abort()


async def test_what_a_connection_has_read_goes_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[weakref.ref[Any]] = []
    gone = asyncio.Event()
    lost = HttpConnection.connection_lost

    def noted(self: HttpConnection, exc: Exception | None) -> None:
        kept.extend((weakref.ref(self.conn), weakref.ref(self.cycle)))
        lost(self, exc)
        asyncio.get_running_loop().call_soon(gone.set)

    monkeypatch.setattr(HttpConnection, "connection_lost", noted)
    async with serving(Connections(app), ServerOptions(http="127.0.0.1:0")) as url:
        _, writer = await said_to(url, b"known")
        gc.disable()
        try:
            writer.transport.abort()
            async with asyncio.timeout(WITHIN_S):
                await gone.wait()
            assert [one() for one in kept] == [None, None]
        finally:
            gc.enable()


async def test_a_small_answer_is_written_once(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[bytes] = []
    made = HttpConnection.connection_made

    def noted(self: HttpConnection, transport: Any) -> None:
        write = transport.write
        transport.write = lambda data: (written.append(bytes(data)), write(data))
        made(self, transport)

    monkeypatch.setattr(HttpConnection, "connection_made", noted)
    async with serving(Connections(app), ServerOptions(http="127.0.0.1:0")) as url:
        line, writer = await said_to(url, b"known")
        assert line.startswith(b"HTTP/1.1 200")
        assert next(one for one in written if one).endswith(b"\r\n\r\n" + str(SENT).encode())
        writer.transport.abort()


async def test_a_head_does_not_wait_for_a_body_that_comes_later() -> None:
    async def slow(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"1")]})
        await asyncio.Event().wait()

    async with serving(Connections(slow), ServerOptions(http="127.0.0.1:0")) as url:
        line, writer = await said_to(url, b"known")
        assert line.startswith(b"HTTP/1.1 200")
        writer.transport.abort()
