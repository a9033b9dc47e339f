"""Callers without a token, in numbers: they are refused, the server's memory does not notice, and tenants get in."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import grpc
import psutil
import pytest
from processes import below, command_line
from rest_servers import RestServer, guarded_rest
from stranger_loads import CHECK, CREATE, LOADS, OPENING, PREFACE, Doors, frame, headers_of
from waiting import until

from rock_env.wire.channel import CLIENT_OPTIONS, target

ROOM_MIB = 64
LOAD_S = 0.7
LIST = "/rock.v1.SandboxService/List"
PER_ADDRESS = 256
"""Connections that one address may have open without a token."""
MORE = 300
HALF_HEADS = {
    "grpc": [
        b"",
        PREFACE[:10],
        OPENING,
        OPENING + frame(1, 0, 1, headers_of(CREATE)),
        OPENING + b"\0\x40\0\0",
    ],
    "http": [b"", b"POST /v1/sand", b"POST /v1/sandboxes HTTP/1.1\r\nhost: x\r\nx-slow: a"],
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestServer]:
    with guarded_rest(tmp_path_factory.mktemp("loads")) as running:
        yield running


@pytest.fixture(scope="module")
def doors(server: RestServer) -> Doors:
    return Doors(target(server.grpc), target(server.url))


class Memory:
    """What a server and all it has started hold, and have held at most since `forget`."""

    def __init__(self, pid: int) -> None:
        server = psutil.Process(pid)
        self._folders = [Path(f"/proc/{one.pid}") for one in (server, *server.children(recursive=True))]
        self._before = self._sum("VmRSS")
        for folder in self._folders:
            (folder / "clear_refs").write_text("5")

    def _sum(self, name: str) -> int:
        lines = (line for one in self._folders for line in (one / "status").read_text().splitlines())
        return sum(int(line.split()[1]) for line in lines if line.startswith(name))

    @property
    def grown_mib(self) -> float:
        return (self._sum("VmHWM") - self._before) / 1024


async def listed(server: RestServer, channel: grpc.aio.Channel | None = None) -> None:
    """List as the tenant does, over a connection of its own if there is none."""
    metadata = tuple(server.headers().items())
    if channel is not None:
        await channel.unary_unary(LIST)(b"", metadata=metadata, timeout=60)
        return
    async with grpc.aio.insecure_channel(target(server.grpc), options=CLIENT_OPTIONS) as own:
        await own.unary_unary(LIST)(b"", metadata=metadata, timeout=60)


@pytest.fixture(scope="module")
def warm(server: RestServer) -> None:
    """Have the server be as it is after some work."""

    async def work() -> None:
        for _ in range(30):
            await listed(server)
        async with server.client() as client:
            for _ in range(30):
                assert (await client.get("/v1/sandboxes")).status_code == 200

    asyncio.run(work())


@pytest.mark.parametrize(
    "name", [name for name in LOADS if not name.startswith(("half handshakes", "half requests", "gateway"))]
)
async def test_a_load_is_refused_and_costs_little(
    server: RestServer, doors: Doors, warm: None, name: str
) -> None:
    memory = Memory(server.pid)
    async with grpc.aio.insecure_channel(doors.grpc, options=CLIENT_OPTIONS) as tenant:
        await listed(server, tenant)
        heard = await LOADS[name](doors, LOAD_S)
        assert heard.let_in == 0, heard
        assert memory.grown_mib < ROOM_MIB
        await listed(server, tenant)
    await listed(server)


async def opened(address: str, said: bytes, stack: AsyncExitStack) -> asyncio.StreamReader:
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    stack.push_async_callback(closed, writer)
    writer.write(said)
    return reader


async def closed(writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()
    with suppress(ConnectionError):
        await writer.wait_closed()


async def ended(reader: asyncio.StreamReader) -> None:
    """Wait until the server has closed a connection."""
    with suppress(ConnectionError):
        while await reader.read(1 << 16):
            pass


@pytest.mark.parametrize("door", HALF_HEADS)
async def test_half_a_head_does_not_keep_a_connection(doors: Doors, door: str) -> None:
    async with AsyncExitStack() as stack:
        readers = [await opened(getattr(doors, door), said, stack) for said in HALF_HEADS[door]]
        await asyncio.gather(*map(ended, readers))


@pytest.mark.parametrize("door", HALF_HEADS)
async def test_an_address_has_so_many_connections_and_a_tenant_one_more(
    server: RestServer, doors: Doors, door: str
) -> None:
    async with AsyncExitStack() as stack:
        readers = [await opened(getattr(doors, door), b"", stack) for _ in range(MORE)]
        closing = [asyncio.ensure_future(ended(reader)) for reader in readers]
        await asyncio.wait(closing[: MORE - PER_ADDRESS])  # the oldest go, as soon as the last have come
        if door == "grpc":
            await listed(server)
        else:
            async with server.client() as client:
                assert (await client.get("/v1/sandboxes")).status_code == 200
        for one in closing:
            one.cancel()
        await asyncio.gather(*closing, return_exceptions=True)


async def test_a_connection_is_a_tenants_whatever_came_before(server: RestServer, doors: Doors) -> None:
    async with grpc.aio.insecure_channel(doors.grpc, options=CLIENT_OPTIONS) as channel:
        assert await channel.unary_unary(CHECK)(b"") == b"\x08\x01"
        await listed(server, channel)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await channel.unary_unary(LIST)(b"")
        assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
        await listed(server, channel)


async def test_a_refused_connection_may_show_a_token_next(server: RestServer, doors: Doors) -> None:
    async with grpc.aio.insecure_channel(doors.grpc, options=CLIENT_OPTIONS) as channel:
        for _ in range(3):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await channel.unary_unary(LIST)(b"")
            assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
            assert dict(caught.value.trailing_metadata())["rock-error-code"] == "unauthenticated"
            assert "ale rock token create" in caught.value.details()
        await listed(server, channel)


async def test_health_without_a_token_is_one_question(doors: Doors) -> None:
    async with grpc.aio.insecure_channel(doors.grpc, options=CLIENT_OPTIONS) as channel:
        call = channel.unary_stream("/grpc.health.v1.Health/Watch")(b"")
        assert await call.code() is grpc.StatusCode.UNIMPLEMENTED


def fronts_of(server: RestServer) -> list[psutil.Process]:
    return [one for one in below(psutil.Process(server.pid)) if "strangers.front" in command_line(one)]


async def test_the_process_at_the_port_is_started_again(server: RestServer) -> None:
    fronts = fronts_of(server)
    assert len(fronts) == 1
    fronts[0].kill()
    await until(lambda: len(fronts_of(server)) == 1 and fronts_of(server) != fronts)
    await listed(server)
