"""Clients that open and never finish, or ask and never read: the server answers others, and keeps nothing of theirs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager

import grpc
import httpx
import psutil
import pytest
from fuzz_server import Fuzzed, fuzzed_server
from processes import below, name_of
from waiting import until

from rock_env.proto.v1 import sandbox_pb2 as pb
from rock_env.proto.v1.sandbox_pb2_grpc import SandboxServiceStub

MIB = 1 << 20
ANSWER_S = 60.0
"""The deadline of a call that must be answered in spite of others."""
SPARE_FDS = 8
"""Handles a server may hold more than before: of connections that it has not yet noticed to be closed."""
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
OPENINGS = {
    "nothing": b"",
    "half a request line": b"POST /v1/sand",
    "half its headers": b"POST /v1/sandboxes HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: a",
    "half a body": b"POST /v1/sandboxes HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    b'Content-Length: 1000\r\n\r\n{"lab',
    "half a preface": PREFACE[:10],
    "a preface": PREFACE,
    "half a frame": PREFACE + b"\0\0\0\4\0\0\0\0\0" + b"\0\1\0\1\4\0\0",
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fuzzed]:
    with fuzzed_server(tmp_path_factory.mktemp("slow")) as running:
        yield running


def running(process: psutil.Process, program: str) -> int:
    """Count what runs a program below the server."""
    return sum(name_of(child) == program for child in below(process))


@asynccontextmanager
async def opened(address: str, first: bytes) -> AsyncIterator[asyncio.StreamWriter]:
    """Open a connection, say a little and no more; close it rudely afterwards."""
    host, _, port = address.rpartition("/")[2].rpartition(":")
    _, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(first)
        await writer.drain()
        yield writer
    finally:
        writer.transport.abort()


async def answers(server: Fuzzed) -> None:
    """Use both faces as anybody would; each call has a deadline."""
    async with server.rest.client() as client:
        assert (await client.get("/healthz", timeout=ANSWER_S)).status_code == 200
        box = (await client.post("/v1/sandboxes", json={}, timeout=ANSWER_S)).json()["id"]
        run = await client.post(
            f"/v1/sandboxes/{box}/exec", json={"start": {"argv": ["echo", "hi"]}}, timeout=ANSWER_S
        )
        assert "aGkK" in run.text
    async with server.channel() as channel:
        stub, who = SandboxServiceStub(channel), server.metadata("sandbox")
        assert (await stub.Get(pb.GetSandboxRequest(id=box), metadata=who, timeout=ANSWER_S)).id == box
        await stub.Delete(pb.DeleteSandboxRequest(id=box), metadata=who, timeout=ANSWER_S)


@pytest.mark.parametrize("said", list(OPENINGS))
async def test_two_hundred_connections_that_go_nowhere(server: Fuzzed, said: str) -> None:
    await answers(server)
    process = server.process
    before, memory = process.num_fds(), process.memory_info().rss
    async with AsyncExitStack() as stack:
        for number in range(200):
            address = (server.rest.grpc, server.rest.url)[number % 2]
            await stack.enter_async_context(opened(address, OPENINGS[said]))
        await answers(server)
    await until(lambda: process.num_fds() <= before + SPARE_FDS)
    assert process.memory_info().rss - memory < 64 * MIB


async def test_a_drop_at_a_time_holds_nobody_up(server: Fuzzed) -> None:
    drops = b"POST /v1/sandboxes HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n\r\n"

    async def drip(address: str) -> None:
        async with opened(address, b"") as writer:
            for at in range(len(drops)):
                writer.write(drops[at : at + 1])
                await asyncio.sleep(0.05)

    dripping = [asyncio.ensure_future(drip(address)) for address in (server.rest.grpc, server.rest.url) * 20]
    for _ in range(3):
        await answers(server)
    for task in dripping:
        task.cancel()
    await asyncio.gather(*dripping, return_exceptions=True)


@asynccontextmanager
async def flooding(server: Fuzzed) -> AsyncIterator[str]:
    """Make a box for a command that writes without end; delete it afterwards."""
    async with server.channel() as channel:
        stub, who = SandboxServiceStub(channel), server.metadata("sandbox")
        box = (await stub.Create(pb.CreateSandboxRequest(), metadata=who)).id
        yield box
        await stub.Delete(pb.DeleteSandboxRequest(id=box), metadata=who, timeout=ANSWER_S)


async def unread(server: Fuzzed, listen: Callable[[asyncio.Event], Awaitable[None]]) -> None:
    """Let nobody read for a while; the server must neither grow nor fail others, and the box must still obey.

    `listen` sets the event when its call has begun, and reads no more.
    """
    process = server.process
    before = process.memory_info().rss
    begun = asyncio.Event()
    listening = asyncio.ensure_future(listen(begun))
    await asyncio.wait_for(begun.wait(), ANSWER_S)
    await asyncio.sleep(1.0)
    for _ in range(2):
        await answers(server)
    assert not listening.done()
    grown = process.memory_info().rss - before
    listening.cancel()
    await asyncio.gather(listening, return_exceptions=True)
    assert grown < 64 * MIB, f"the server kept {grown / MIB:.0f} MiB of output for who did not read"


FLOOD = pb.ExecStart(argv=["yes"], max_output_bytes=1 << 40, timeout={"seconds": 600})


async def test_a_reader_that_stops_reading_over_grpc(server: Fuzzed) -> None:
    async with flooding(server) as box:

        async def listen(begun: asyncio.Event) -> None:
            start = pb.ExecStart(sandbox_id=box)
            start.MergeFrom(FLOOD)
            async with server.channel() as channel:
                call = SandboxServiceStub(channel).Exec(metadata=server.metadata("sandbox"))
                await call.write(pb.ExecRequest(start=start))
                assert (await call.read()) is not grpc.aio.EOF
                begun.set()
                await asyncio.sleep(600)

        await unread(server, listen)


async def test_a_reader_that_stops_reading_over_rest(server: Fuzzed) -> None:
    async with flooding(server) as box:

        async def listen(begun: asyncio.Event) -> None:
            start = {"argv": ["yes"], "max_output_bytes": str(1 << 40), "timeout": "600s"}
            async with (
                httpx.AsyncClient(
                    base_url=server.rest.url, headers=dict(server.metadata("sandbox")), timeout=ANSWER_S
                ) as client,
                client.stream("POST", f"/v1/sandboxes/{box}/exec", json={"start": start}) as reply,
            ):
                assert reply.status_code == 200
                begun.set()
                await asyncio.sleep(600)

        await unread(server, listen)


async def test_many_readers_that_stop_and_hang_up(server: Fuzzed) -> None:
    process = server.process
    await answers(server)
    before = process.num_fds()
    async with flooding(server) as box:
        start = pb.ExecStart(sandbox_id=box)
        start.MergeFrom(FLOOD)
        async with AsyncExitStack() as stack:
            for _ in range(16):
                channel = await stack.enter_async_context(server.channel())
                call = SandboxServiceStub(channel).Exec(metadata=server.metadata("sandbox"))
                await call.write(pb.ExecRequest(start=start))
                assert (await call.read()) is not grpc.aio.EOF
            await answers(server)
            assert running(process, "yes") == 16
        await until(lambda: running(process, "yes") == 0)  # their commands end with their calls
    await until(lambda: process.num_fds() <= before + SPARE_FDS)
