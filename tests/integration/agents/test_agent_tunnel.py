"""What a sandbox without network reaches through a tunnel: the one address it was opened for, and nothing else."""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from docker_engine import BUSYBOX, engine  # noqa: F401  a fixture
from fences import why_not_isolated

from agent_runtime.agents import tunnel as tunnel_module
from agent_runtime.agents.cli_run import box_python
from agent_runtime.agents.tunnel import Tunnel, open_tunnel
from rock_env.client import Client
from rock_env.client.sandbox.handle import AsyncSandbox
from rock_env.local import embedded
from rock_env.spec import SandboxSpec

PYTHON = box_python("")
TRY = """
import json, socket, sys
port, other = int(sys.argv[1]), int(sys.argv[2])
def attempt(act):
    try:
        return act()
    except OSError as error:
        return type(error).__name__
def ask(host, port):
    with socket.create_connection((host, port), timeout=5) as sock:
        sock.sendall(b"who")
        sock.shutdown(socket.SHUT_WR)
        return sock.recv(100).decode()
print(json.dumps({
    "gateway": attempt(lambda: ask("127.0.0.1", port)),
    "loopback": attempt(lambda: ask("127.0.0.1", other)),
    "name": attempt(lambda: socket.getaddrinfo("example.org", 80) and "resolved"),
    "internet": attempt(lambda: ask("192.0.2.1", 80)),
    "devices": sorted(name for _, name in socket.if_nameindex()),
}))
"""
ECHO = """
import hashlib, socket, sys, threading
port, count = int(sys.argv[1]), int(sys.argv[2])
stalled = socket.create_connection(("127.0.0.1", port))
def feed(sock, data):
    sock.sendall(data)
    sock.shutdown(socket.SHUT_WR)
block = bytes(range(256)) * 4096
# Somebody sends and never reads: of this the other connection must notice nothing.
threading.Thread(target=feed, args=(stalled, block * count), daemon=True).start()
with socket.create_connection(("127.0.0.1", port)) as sock:
    threading.Thread(target=feed, args=(sock, block * count), daemon=True).start()
    seen, size = hashlib.sha256(), 0
    while data := sock.recv(1 << 16):
        seen.update(data)
        size += len(data)
print(size, seen.hexdigest())
"""


@asynccontextmanager
async def echo(where: Path | None = None, port: int = 0) -> AsyncIterator[tuple[str, int] | Path]:
    """Serve an echo; yield its address."""

    writers: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        try:
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()

    if where is None:
        server = await asyncio.start_server(serve, "127.0.0.1", port)
    else:
        server = await asyncio.start_unix_server(serve, where)
    async with server:
        yield where or server.sockets[0].getsockname()[:2]
    for writer in writers:
        writer.transport.abort()  # what a stalled reader never took would keep it open beyond the test
        with suppress(OSError):
            await writer.wait_closed()


def free_port(low: int, beyond: int) -> int:
    """Return a port of the loopback that nobody listens on."""
    for port in random.sample(range(low, beyond), 100):
        with socket.socket() as sock, suppress(OSError):
            sock.bind(("127.0.0.1", port))
            return port
    raise AssertionError(f"a hundred ports between {low} and {beyond} are taken")


@pytest.fixture
async def box() -> AsyncIterator[AsyncSandbox]:
    """A sandbox of processes."""
    async with (
        embedded() as address,
        Client(address) as client,
        await client.sandboxes.create(spec=SandboxSpec()) as made,
    ):
        yield made


def port_of(tunnel: Tunnel) -> str:
    return tunnel.base_url.rpartition(":")[2]


async def reached(box: AsyncSandbox, tunnel: Tunnel, other: int, *python: str) -> dict[str, object]:
    said = await box.exec([*(python or PYTHON), "-c", TRY, port_of(tunnel), str(other)])
    assert said.ok, said.stderr.decode()
    found: dict[str, object] = json.loads(said.stdout)
    return found


async def test_a_box_reaches_the_gateway_and_nothing_else(box: AsyncSandbox) -> None:
    if why := await asyncio.to_thread(why_not_isolated):
        pytest.skip(f"sandboxes are not fenced here: {why}")
    # Below the ports the kernel gives out: a connection to one of those can meet itself, and echo.
    port = free_port(20_000, 30_000)
    async with echo() as gateway, echo(port=port) as other, open_tunnel(box, gateway) as tunnel:
        assert isinstance(other, tuple)
        found = await reached(box, tunnel, other[1])
    assert found["gateway"] == "who"
    assert found["loopback"] == "ConnectionRefusedError"
    assert found["name"] == "gaierror"
    assert found["internet"] == "OSError"
    assert found["devices"] == ["lo"]


async def test_megabytes_pass_both_ways_beside_a_connection_that_stalls(
    box: AsyncSandbox, tmp_path: Path
) -> None:
    count = 6  # MiB: several windows
    sent = bytes(range(256)) * 4096 * count
    async with echo(tmp_path / "gateway") as gateway, open_tunnel(box, gateway) as tunnel:
        said = await box.exec([*PYTHON, "-c", ECHO, port_of(tunnel), str(count)], timeout_s=120)
    assert said.stdout.decode().split() == [str(len(sent)), hashlib.sha256(sent).hexdigest()], (
        said.stderr.decode()
    )


ASK_OFTEN = """
import socket, sys
port, count = int(sys.argv[1]), int(sys.argv[2])
held = socket.create_connection(("127.0.0.1", port))
for _ in range(count):
    with socket.create_connection(("127.0.0.1", port)) as sock:
        sock.sendall(b"x" * 100_000)
        sock.shutdown(socket.SHUT_WR)
        size = 0
        while data := sock.recv(1 << 16):
            size += len(data)
        assert size == 100_000, size
held.sendall(b"held")
print(held.recv(10).decode())
"""


async def test_more_passes_than_one_relay_may_carry(
    box: AsyncSandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tunnel_module, "_RETIRED_AT", 1_000_000)
    async with echo(tmp_path / "gateway") as gateway, open_tunnel(box, gateway) as tunnel:
        said = await box.exec([*PYTHON, "-c", ASK_OFTEN, port_of(tunnel), "40"], timeout_s=120)
        assert said.stdout.decode().split() == ["held"], said.stderr.decode()
        listening = await box.exec(["sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"])
        relays = listening.stdout.decode().count("LISTENS, OPEN")
        assert 1 <= relays <= 3, "those that were retired have ended"
        assert not tunnel.lost.done()


async def test_a_relay_that_has_carried_all_it_may_ends(
    box: AsyncSandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tunnel_module, "_RETIRED_AT", 1_000_000)
    monkeypatch.setattr(tunnel_module, "_ENDED_AT", 3_000_000)
    async with echo(tmp_path / "gateway") as gateway, open_tunnel(box, gateway) as tunnel:
        broken = await box.exec([*PYTHON, "-c", ECHO, port_of(tunnel), "6"], timeout_s=120)
        assert broken.stdout.decode().split()[:1] != [str(6 << 20)]
        assert (await reached(box, tunnel, 1))["gateway"] == "who", "another one listens"
        assert not tunnel.lost.done()


async def test_a_gateway_that_is_down_refuses_and_the_tunnel_stands(
    box: AsyncSandbox, tmp_path: Path
) -> None:
    path = tmp_path / "gateway"
    async with open_tunnel(box, path) as tunnel:
        # Before its shutdown or after it: one after the reset is told it is not connected.
        refused = ("", "ConnectionResetError", "BrokenPipeError", "OSError")
        assert (await reached(box, tunnel, 1))["gateway"] in refused
        async with echo(path):
            assert (await reached(box, tunnel, 1))["gateway"] == "who"
        assert not tunnel.lost.done()


async def test_a_relay_that_is_killed_is_noticed(box: AsyncSandbox, tmp_path: Path) -> None:
    async with echo(tmp_path / "gateway") as gateway, open_tunnel(box, gateway) as tunnel:
        await box.exec(["sh", "-c", "kill -9 -1"])
        async with asyncio.timeout(30):
            error = await tunnel.lost
    assert "relay" in str(error)


async def test_nothing_listens_once_the_tunnel_is_closed(box: AsyncSandbox, tmp_path: Path) -> None:
    async with echo(tmp_path / "gateway") as gateway:
        async with open_tunnel(box, gateway) as tunnel:
            pass
        assert (await reached(box, tunnel, 1))["gateway"] == "ConnectionRefusedError"


@pytest.mark.usefixtures("engine")
async def test_a_box_of_an_image_without_python_has_a_tunnel_too(tmp_path: Path) -> None:
    async with (
        embedded() as address,
        Client(address) as client,
        await client.sandboxes.create(BUSYBOX) as made,
        echo(tmp_path / "gateway") as gateway,
        open_tunnel(made, gateway, python=box_python(BUSYBOX)) as tunnel,
    ):
        ask = (
            f"echo who | nc -w 5 127.0.0.1 {port_of(tunnel)}; echo who | nc -w 2 127.0.0.1 9 || echo refused"
        )
        said = await made.exec(["sh", "-c", ask])
        assert said.stdout.decode().split() == ["who", "refused"], said.stderr.decode()
