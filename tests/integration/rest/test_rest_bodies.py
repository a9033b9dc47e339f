"""Bodies of REST requests that have two lengths, announce too much or stop coming, over the face's own connections."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from typing import Any

import pytest
from starlette.requests import Request

from rock_env.server.options import ServerOptions
from rock_env.server.rest.app import serving
from rock_env.server.rest.connections import Connections, HttpConnection, admitted
from rock_env.server.rest.request import Gone, blocks, body

QUIET_S = 0.5
LIMIT = 1000
WITHIN_S = 20.0
POST = b"POST /%s HTTP/1.1\r\nhost: x\r\n"
GONE = asyncio.Event()
CHUNKED = POST % b"json" + b"transfer-encoding: chunked\r\n\r\n"


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Answer with a body's length: of JSON, of raw bytes, or while they come."""
    admitted()
    request = Request(scope, receive, send)
    start = {"type": "http.response.start", "status": 200, "headers": [(b"connection", b"close")]}
    try:
        if scope["path"] == "/json":
            size = len(await body(request, LIMIT))
            await send(start)
        elif scope["path"] == "/raw":
            size = sum([len(block) async for block in blocks(request)])
            await send(start)
        elif scope["path"] == "/late":
            await send(start | {"headers": [(b"content-length", b"0"), (b"connection", b"close")]})
            await GONE.wait()
            await send({"type": "http.response.body", "body": b""})
            return
        else:
            await send(start)
            await send({"type": "http.response.body", "body": b"begun ", "more_body": True})
            size = sum([len(block) async for block in blocks(request)])
    except Gone:
        return
    await send({"type": "http.response.body", "body": str(size).encode()})


@pytest.fixture
async def connection(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Any]:
    monkeypatch.setattr(HttpConnection, "quiet_s", QUIET_S)
    async with serving(Connections(app), ServerOptions(http="127.0.0.1:0")) as url:
        host, _, port = url.removeprefix("http://").rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        try:
            yield reader, writer
        finally:
            writer.transport.abort()


async def told(connection: Any, said: bytes) -> bytes:
    reader, writer = connection
    writer.write(said)
    async with asyncio.timeout(WITHIN_S):
        return bytes(await reader.read())


async def test_a_body_has_one_length(connection: Any) -> None:
    two = CHUNKED.replace(b"host", b"content-length: 2\r\nhost")
    answer = await told(connection, two + b"2\r\n{}\r\n0\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"Content-Length and Transfer-Encoding exclude each other" in answer


@pytest.mark.parametrize(
    "said",
    [
        POST % b"json" + b"content-length: 100\r\n\r\n",
        POST % b"raw" + b"content-length: 100\r\n\r\nxx",
        CHUNKED,
        CHUNKED + b"5\r\nab",
    ],
)
async def test_a_body_of_which_nothing_more_comes_is_ended(connection: Any, said: bytes) -> None:
    answer = await told(connection, said)
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"no byte of the body came within 0.5 s" in answer


@pytest.mark.parametrize(
    ("path", "size", "most"), [(b"json", b"3e9", 1000), (b"raw", b"1" + b"0" * 19, 1 << 40)]
)
async def test_a_chunk_above_the_limit_is_refused_as_it_is_announced(
    connection: Any, monkeypatch: pytest.MonkeyPatch, path: bytes, size: bytes, most: int
) -> None:
    monkeypatch.setattr(HttpConnection, "quiet_s", 600.0)
    answer = await told(connection, CHUNKED.replace(b"json", path) + size + b"\r\n")
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert f"a chunk is larger than {most} bytes".encode() in answer


async def test_input_may_pause_while_its_answer_is_under_way(connection: Any) -> None:
    reader, writer = connection
    writer.write(POST % b"both" + b"content-length: 2\r\n\r\n")
    async with asyncio.timeout(WITHIN_S):
        await reader.readuntil(b"begun ")
    await asyncio.sleep(3 * QUIET_S)
    assert (await told(connection, b"ab")).endswith(b"1\r\n2\r\n0\r\n\r\n")


async def test_a_peer_that_is_gone_before_its_answer_ends_leaves_no_error(
    connection: Any, caplog: pytest.LogCaptureFixture
) -> None:
    reader, writer = connection
    writer.write(POST % b"late" + b"content-length: 9999999\r\n\r\n" + b"x" * (1 << 20))
    async with asyncio.timeout(WITHIN_S):
        await reader.readuntil(b"\r\n\r\n")
    sock = writer.transport.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
    await asyncio.sleep(0.1)
    GONE.set()
    await asyncio.sleep(0.1)
    assert "Exception in ASGI application" not in caplog.text
