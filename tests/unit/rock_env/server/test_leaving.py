"""How a server leaves: every call ends with its result, or with UNAVAILABLE and what to do about it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest
from waiting import until

from rock_env.server.interceptors.leaving import LeavingInterceptor

LONG_S = 600.0


@dataclass
class Served:
    """A server whose calls wait until `go`, and a channel to it."""

    leaving: LeavingInterceptor
    server: grpc.aio.Server
    channel: grpc.aio.Channel
    address: str
    go: asyncio.Event = field(default_factory=asyncio.Event)
    hurried: asyncio.Event = field(default_factory=asyncio.Event)
    begun: int = 0

    async def act(self, _: bytes, __: Any) -> bytes:
        self.begun += 1
        await self.go.wait()
        return b"done"

    async def replies(self, _: bytes, __: Any) -> AsyncIterator[bytes]:
        yield await self.act(_, __)

    async def collect(self, requests: AsyncIterator[bytes], _: Any) -> bytes:
        self.begun += 1
        return b"".join([request async for request in requests])

    async def listen(self, requests: AsyncIterator[bytes], _: Any) -> None:
        self.begun += 1
        async for _ in requests:
            pass

    async def flood(self, _: AsyncIterator[bytes], context: Any) -> None:
        self.begun += 1
        while True:
            await context.write(bytes(1 << 16))

    def stop(self, within_s: float) -> asyncio.Task[None]:
        return asyncio.ensure_future(
            self.leaving.stop(self.server, within_s, via=self.address, hurried=self.hurried)
        )


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    leaving = LeavingInterceptor()
    server = grpc.aio.server(interceptors=[leaving])
    address = f"unix:{tmp_path}/socket"
    server.add_insecure_port(address)
    async with grpc.aio.insecure_channel(address) as channel:
        made = Served(leaving, server, channel, address)
        handlers = {
            "act": grpc.unary_unary_rpc_method_handler(made.act),
            "replies": grpc.unary_stream_rpc_method_handler(made.replies),
            "collect": grpc.stream_unary_rpc_method_handler(made.collect),
            "listen": grpc.stream_stream_rpc_method_handler(made.listen),
            "flood": grpc.stream_stream_rpc_method_handler(made.flood),
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test", handlers),))
        await server.start()
        yield made
    await server.stop(None)


async def begun(served: Served, shape: str) -> Any:
    """Make a call, as a stream, which fits every shape on the wire, and return when its handler runs."""
    before = served.begun
    call = served.channel.stream_stream(f"/test/{shape}")()
    await call.write(b"x")
    if shape in ("act", "replies"):
        await call.done_writing()
    await until(lambda: served.begun > before)
    return call


SHAPES = ["act", "replies", "collect", "listen"]


@pytest.mark.parametrize("shape", SHAPES)
async def test_a_call_that_does_not_end_in_time_is_told_why(served: Served, shape: str) -> None:
    call = await begun(served, shape)
    await served.stop(0.01)
    assert await call.code() is grpc.StatusCode.UNAVAILABLE
    assert "cut off and its outcome is unknown" in await call.details()
    assert "rock-error-code" not in dict(await call.trailing_metadata())


async def test_a_caller_that_does_not_read_holds_nobody_up(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rock_env.server.interceptors.leaving._ENDING_S", 0.1)
    call = await begun(served, "flood")
    await served.stop(0.01)
    with suppress(grpc.aio.AioRpcError):  # what was sent comes first
        while await call.read() is not grpc.aio.EOF:
            pass
    assert await call.code() is grpc.StatusCode.UNAVAILABLE


async def test_somebody_in_a_hurry_does_not_wait_for_running_calls(served: Served) -> None:
    call = await begun(served, "act")
    stopping = served.stop(LONG_S)
    served.hurried.set()
    await stopping
    assert await call.code() is grpc.StatusCode.UNAVAILABLE


async def test_a_call_that_ends_in_time_gives_its_result_and_is_all_that_is_waited_for(
    served: Served,
) -> None:
    call = await begun(served, "act")
    stopping = served.stop(LONG_S)
    served.go.set()
    assert await call.read() == b"done"
    assert await call.code() is grpc.StatusCode.OK
    await stopping


async def test_a_call_that_its_caller_cancelled_stays_cancelled(served: Served) -> None:
    call = await begun(served, "listen")
    call.cancel()
    assert await call.code() is grpc.StatusCode.CANCELLED
    await served.stop(LONG_S)


async def test_calls_that_wait_at_the_door_when_it_closes_are_told_so(served: Served) -> None:
    """gRPC alone ends with CANCELLED what it has received and the server's busy loop has not begun."""
    served.go.set()
    with (
        grpc.insecure_channel(served.address) as channel,
        ThreadPoolExecutor(8) as threads,
    ):
        act = channel.unary_unary("/test/act")
        assert await asyncio.to_thread(act, b"", timeout=60) == b"done"  # it is connected

        calling = threading.Barrier(9)

        def one() -> tuple[grpc.StatusCode, str]:
            calling.wait()
            try:
                assert act(b"", timeout=60) == b"done"
            except grpc.RpcError as error:
                return error.code(), error.details()
            return grpc.StatusCode.OK, ""

        futures = [threads.submit(one) for _ in range(8)]
        calling.wait()
        time.sleep(1.0)  # noqa: ASYNC251  a loop that is busy while calls come
        stopping = served.stop(LONG_S)
        ends = await asyncio.gather(*(asyncio.wrap_future(future) for future in futures))
        await stopping
    assert {code for code, _ in ends} <= {grpc.StatusCode.OK, grpc.StatusCode.UNAVAILABLE}
    assert any("did not begin this call" in said for _, said in ends), ends
