"""The HTTP server under the gateway: clients that are slow, large, deaf or gone, over real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from waiting import until

from agent_runtime.chat import Refusal
from agent_runtime.gateway.exchange import ClientGone, Exchange, Receive, Scope, Send
from agent_runtime.gateway.http_server import Limits, serving

FAST = Limits(body_bytes=1000, head_s=1.0, body_s=1.0, stalled_s=1.0, idle_s=30, stop_s=1.0)
CHUNKED = b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
GET = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"
WITHIN_S = 20.0


class App:
    """Answers with the length of the body, or with as much as is asked for."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.answer = b""
        self.begun = asyncio.Event()
        self.go = asyncio.Event()
        self.go.set()
        self.gone = 0
        self.under_way = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange = Exchange(scope, receive, send, self.limits)
        self.under_way += 1
        try:
            body = await exchange.body()
            exchange.watch()
            self.begun.set()
            await self.go.wait()
            await exchange.respond(200, (), self.answer or str(len(body)).encode())
        except Refusal as refusal:
            await exchange.respond(400, (), str(refusal).encode())
        except ClientGone:
            self.gone += 1
        finally:
            self.under_way -= 1
            await exchange.leave()


Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Connection]:
    host, _, port = url.removeprefix("http://").rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def all_of(reader: asyncio.StreamReader) -> bytes:
    """Read until the server closes, also where it does so while more is being sent to it."""
    said = b""
    async with asyncio.timeout(WITHIN_S):
        with suppress(ConnectionError):
            while part := await reader.read(1 << 16):
                said += part
    return said


async def answer_of(reader: asyncio.StreamReader) -> bytes:
    async with asyncio.timeout(WITHIN_S):
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        return head + await reader.readexactly(length)


def post(length: int) -> bytes:
    return f"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n".encode()


@pytest.mark.parametrize("said", [b"", b"POST / HT", b"POST / HTTP/1.1\r\nhost: x\r\nx-slow: a"])
async def test_a_head_that_never_ends_is_cut(said: bytes) -> None:
    async with serving(App(FAST), limits=FAST) as url, connected(url) as (reader, writer):
        writer.write(said)
        assert await all_of(reader) == b""


async def test_a_second_head_that_drips_is_cut() -> None:
    """Every byte renews a timer that only watches for silence; this one must not."""
    async with serving(App(FAST), limits=FAST) as url, connected(url) as (reader, writer):
        writer.write(GET)
        assert (await answer_of(reader)).endswith(b"\r\n\r\n0")

        async def drip() -> None:
            while not writer.is_closing():
                writer.write(b"x")
                await asyncio.sleep(0.05)

        dripping = asyncio.ensure_future(drip())
        assert await all_of(reader) == b""
        dripping.cancel()
        await asyncio.gather(dripping, return_exceptions=True)


async def test_an_idle_connection_outlives_the_limit_of_a_head() -> None:
    async with serving(App(FAST), limits=FAST) as url, connected(url) as (reader, writer):
        for _ in range(2):
            writer.write(GET)
            assert (await answer_of(reader)).startswith(b"HTTP/1.1 200")
            await asyncio.sleep(2 * FAST.head_s)


async def test_a_body_that_does_not_come_is_refused_with_what_came() -> None:
    async with serving(App(FAST), limits=FAST) as url, connected(url) as (reader, writer):
        writer.write(post(100) + b"12345")
        assert b"got 5 bytes within 1 s" in await all_of(reader)


QUIET = replace(FAST, body_s=60.0, quiet_s=0.5)


@pytest.mark.parametrize("said", [post(100), post(100) + b"12345", CHUNKED, CHUNKED + b"5\r\n1"])
async def test_a_body_of_which_nothing_more_comes_is_ended(said: bytes) -> None:
    app = App(QUIET)
    async with serving(app, limits=QUIET) as url, connected(url) as (reader, writer):
        writer.write(said)
        assert (await all_of(reader)).startswith(b"HTTP/1.1 408 Request Timeout")
        await until(lambda: (app.gone, app.under_way) == (1, 0))


async def test_a_body_that_drips_is_not_quiet() -> None:
    async with serving(App(QUIET), limits=QUIET) as url, connected(url) as (reader, writer):
        writer.write(post(20))
        for _ in range(20):
            await asyncio.sleep(QUIET.quiet_s / 10)
            writer.write(b"x")
        assert (await answer_of(reader)).endswith(b"\r\n\r\n20")


async def test_a_chunk_above_the_limit_is_refused_as_it_is_announced() -> None:
    async with (
        serving(App(FAST), limits=replace(FAST, body_s=600.0)) as url,
        connected(url) as (reader, writer),
    ):
        writer.write(CHUNKED + b"3e9\r\n")  # 1001
        said = await all_of(reader)
        assert said.startswith(b"HTTP/1.1 413 ")
        assert b"a chunk is larger than 1000 bytes." in said


async def test_a_body_has_one_length() -> None:
    async with serving(App(FAST), limits=FAST) as url, connected(url) as (reader, writer):
        writer.write(CHUNKED.replace(b"host", b"content-length: 2\r\nhost") + b"2\r\n{}\r\n0\r\n\r\n")
        said = await all_of(reader)
        assert said.startswith(b"HTTP/1.1 400 ")
        assert b"exclude each other" in said


async def test_who_sends_too_much_and_listens_then_hears_why_and_may_ask_again() -> None:
    async with serving(App(FAST), limits=FAST) as url, connected(url) as (reader, writer):
        writer.write(post(1 << 20))
        for _ in range(16):
            writer.write(b"x" * (1 << 16))
            await writer.drain()
        assert b"larger than 1000 bytes" in await answer_of(reader)
        writer.write(post(1) + b"x")
        assert (await answer_of(reader)).endswith(b"\r\n\r\n1")


async def test_a_body_of_exactly_the_limit_passes() -> None:
    async with serving(App(FAST), limits=FAST) as url, connected(url) as (reader, writer):
        writer.write(post(1000) + b"x" * 1000)
        assert (await answer_of(reader)).endswith(b"\r\n\r\n1000")


async def test_a_body_without_end_is_refused_and_the_connection_closed() -> None:
    async with serving(App(FAST), limits=FAST) as url, connected(url) as (reader, writer):
        writer.write(b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n")

        async def flood() -> None:
            while True:
                writer.write(b"400\r\n" + b"x" * 1024 + b"\r\n")
                await writer.drain()

        flooding = asyncio.ensure_future(flood())
        assert b"larger than 1000 bytes" in await all_of(reader)
        flooding.cancel()
        await asyncio.gather(flooding, return_exceptions=True)


async def test_an_encoded_body_is_refused_with_the_remedy() -> None:
    async with serving(App(FAST), limits=FAST) as url, connected(url) as (reader, writer):
        writer.write(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-encoding: gzip\r\ncontent-length: 1\r\n\r\nx")
        assert b"'gzip', expected plain JSON" in await answer_of(reader)


async def test_headers_without_end_are_refused() -> None:
    limits = Limits(head_bytes=2000)
    async with serving(App(limits), limits=limits) as url, connected(url) as (reader, writer):
        writer.write(b"GET / HTTP/1.1\r\nhost: x\r\nx-long: " + b"y" * 3000)
        assert (await all_of(reader)).startswith(b"HTTP/1.1 400")


async def test_a_client_that_reads_nothing_is_cut() -> None:
    app = App(FAST)
    app.answer = b"x" * (64 << 20)
    async with serving(app, limits=FAST) as url, connected(url) as (_, writer):
        writer.write(GET)
        await until(lambda: app.gone == 1)
        assert app.under_way == 0


async def test_a_client_that_leaves_while_it_waits_is_noticed() -> None:
    app = App(FAST)
    app.go.clear()
    async with serving(app, limits=FAST) as url:
        async with connected(url) as (_, writer):
            writer.write(GET)
            await app.begun.wait()
        await asyncio.sleep(0.1)
        app.go.set()
        await until(lambda: app.under_way == 0)
        assert app.gone == 1


async def test_a_stop_lets_answers_finish() -> None:
    app = App(FAST)
    app.go.clear()
    async with connected_after(app) as (reader, _, stop):
        app.go.set()
        assert (await answer_of(reader)).endswith(b"0")
        await stop


async def test_a_stop_cuts_what_does_not_finish_and_leaves_nothing() -> None:
    app = App(FAST)
    app.go.clear()
    async with connected_after(app) as (reader, _, stop):
        await stop
        assert app.under_way == 0
        assert b"200" not in await all_of(reader)


@asynccontextmanager
async def connected_after(
    app: App,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter, asyncio.Future[None]]]:
    """Ask, and begin to stop the server while the answer is under way."""
    started, end = asyncio.Event(), asyncio.Event()
    urls = []

    async def serve() -> None:
        async with serving(app, limits=FAST) as url:
            urls.append(url)
            started.set()
            await end.wait()

    stop = asyncio.ensure_future(serve())
    await started.wait()
    async with connected(urls[0]) as (reader, writer):
        writer.write(GET)
        await app.begun.wait()
        end.set()
        await asyncio.sleep(0.05)
        yield reader, writer, stop
    await stop


async def test_a_unix_socket(tmp_path: Path) -> None:
    path = tmp_path / "s"
    async with serving(App(FAST), path, limits=FAST) as where:
        assert where == str(path)
        reader, writer = await asyncio.open_unix_connection(where)
        writer.write(GET)
        assert (await answer_of(reader)).endswith(b"0")
        writer.close()
    assert not path.exists()


async def test_an_address_in_use_is_named() -> None:
    async with serving(App(FAST)) as url:
        with pytest.raises(OSError, match=r"cannot listen on 127.0.0.1:\d+.*port 0"):
            async with serving(App(FAST), url.removeprefix("http://")):
                pass
