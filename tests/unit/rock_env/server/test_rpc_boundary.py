"""The edge between gRPC and handlers: what cannot be read and what nobody expected ends as one clear status."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from rock_env.errors import NotFound
from rock_env.proto.v1 import env_pb2 as pb
from rock_env.server.calls import fail
from rock_env.server.interceptors.boundary import BoundaryInterceptor

MALFORMED = b"\x0a\x05x"
ROUGH = b"the handler's own business"


async def unary(request: pb.ForkRequest, _: Any) -> bytes:
    return await answer(request.env_id)


async def answer(wish: str) -> bytes:
    if wish == "bug":
        raise ValueError(ROUGH)
    if wish == "not found":
        raise NotFound("no such thing")
    if wish == "halves":
        raise ExceptionGroup("both", [ExceptionGroup("inner", [NotFound("no such thing")]), ValueError()])
    return wish.encode()


async def replies(request: pb.ForkRequest, _: Any) -> AsyncIterator[bytes]:
    yield b"first"
    yield await answer(request.env_id)


async def collect(requests: AsyncIterator[pb.ForkRequest], _: Any) -> bytes:
    return b",".join([await answer(request.env_id) async for request in requests])


async def echo(requests: AsyncIterator[pb.ForkRequest], context: Any) -> None:
    async for request in requests:
        await context.write(await answer(request.env_id))


async def refuse(_: Any, context: Any) -> None:
    await fail(context, NotFound("é" * 100_000))


HANDLERS = {
    "unary": grpc.unary_unary_rpc_method_handler(unary, pb.ForkRequest.FromString),
    "replies": grpc.unary_stream_rpc_method_handler(replies, pb.ForkRequest.FromString),
    "collect": grpc.stream_unary_rpc_method_handler(collect, pb.ForkRequest.FromString),
    "echo": grpc.stream_stream_rpc_method_handler(echo, pb.ForkRequest.FromString),
    "refuse": grpc.stream_stream_rpc_method_handler(refuse, pb.ForkRequest.FromString),
}


@pytest.fixture
async def channel(tmp_path: Path) -> AsyncIterator[grpc.aio.Channel]:
    server = grpc.aio.server(interceptors=[BoundaryInterceptor()])
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test", HANDLERS),))
    server.add_insecure_port(f"unix:{tmp_path}/socket")
    await server.start()
    async with grpc.aio.insecure_channel(f"unix:{tmp_path}/socket") as opened:
        yield opened
    await server.stop(None)


async def called(channel: grpc.aio.Channel, name: str, *messages: bytes) -> tuple[list[bytes], Any]:
    """Make the call as a stream, which fits every shape on the wire; return what came and the call."""
    call = channel.stream_stream(f"/test/{name}")(timeout=20)
    for message in messages:
        await call.write(message)
    await call.done_writing()
    came = []
    try:
        while (reply := await call.read()) is not grpc.aio.EOF:
            came.append(reply)
    except grpc.aio.AioRpcError:
        pass
    return came, call


def wish(text: str) -> bytes:
    return bytes(pb.ForkRequest(env_id=text).SerializeToString())


SHAPES = ["unary", "replies", "collect", "echo"]


@pytest.mark.parametrize("shape", SHAPES)
async def test_what_is_no_message_is_the_callers_mistake(channel: grpc.aio.Channel, shape: str) -> None:
    _, call = await called(channel, shape, MALFORMED)
    assert await call.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert dict(await call.trailing_metadata())["rock-error-code"] == "invalid_argument"
    assert "malformed request" in await call.details()


@pytest.mark.parametrize("shape", ["collect", "echo"])
async def test_a_later_message_that_is_none_ends_the_call(channel: grpc.aio.Channel, shape: str) -> None:
    came, call = await called(channel, shape, wish("a"), MALFORMED, wish("b"))
    assert await call.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert came == ([b"a"] if shape == "echo" else [])


@pytest.mark.parametrize("shape", SHAPES)
async def test_a_bug_is_internal_and_stays_at_home(
    channel: grpc.aio.Channel, shape: str, caplog: pytest.LogCaptureFixture
) -> None:
    _, call = await called(channel, shape, wish("bug"))
    assert await call.code() is grpc.StatusCode.INTERNAL
    assert dict(await call.trailing_metadata())["rock-error-code"] == "internal"
    assert ROUGH.decode() not in await call.details()
    assert f"/test/{shape}" in caplog.text
    assert ROUGH.decode() in caplog.text


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("text", ["not found", "halves"])
async def test_errors_of_ours_keep_their_code(channel: grpc.aio.Channel, shape: str, text: str) -> None:
    _, call = await called(channel, shape, wish(text))
    assert await call.code() is grpc.StatusCode.NOT_FOUND
    assert await call.details() == "no such thing"


@pytest.mark.parametrize("shape", SHAPES)
async def test_what_is_right_passes(channel: grpc.aio.Channel, shape: str) -> None:
    came, call = await called(channel, shape, wish("a"))
    assert await call.code() is grpc.StatusCode.OK
    assert came[-1] == b"a"


async def test_a_long_message_in_any_script_fits_the_header(channel: grpc.aio.Channel) -> None:
    _, call = await called(channel, "refuse")
    assert await call.code() is grpc.StatusCode.NOT_FOUND
    assert set(await call.details()) == {"é"}


async def test_an_early_refusal_is_not_overtaken_by_the_callers_writes(channel: grpc.aio.Channel) -> None:
    calls = [called(channel, "refuse", *[wish("x" * 2000)] * 8) for _ in range(50)]
    codes = [await call.code() for _, call in await asyncio.gather(*calls)]
    assert set(codes) == {grpc.StatusCode.NOT_FOUND}
