"""Egress of networked containers on a real engine: what is listed is reached, and nothing else. No packet leaves here."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from docker_engine import BUSYBOX, bundles, docker, engine  # noqa: F401  fixtures

from rock_env.backends.docker.backend import DockerBackend
from rock_env.errors import InvalidArgument
from rock_env.sandbox import Sandbox
from rock_env.spec import NetworkPolicy, SandboxSpec


def spec(*allow: str) -> SandboxSpec:
    return SandboxSpec(image=BUSYBOX, network=NetworkPolicy(enabled=True, allow=allow))


@pytest.fixture
async def backend(engine: None, bundles: Path) -> AsyncIterator[DockerBackend]:  # noqa: F811
    if shutil.which("iptables") is None:
        pytest.skip("no iptables here (Debian: apt-get install iptables)")
    made = DockerBackend(bundles=bundles)
    yield made
    own = await network_of(made)
    await made.close()
    state = own.removeprefix("rock-")
    assert not [rule for rule in rules() if state in rule], "a closed backend leaves no rule"
    assert own not in await asyncio.to_thread(docker, "network", "ls", "--format", "{{.Name}}")


def rules() -> list[str]:
    """Return the packet filter's rules that a backend made."""
    listed = subprocess.run(["iptables", "-w", "-S"], capture_output=True, text=True, check=True).stdout
    return [line for line in listed.splitlines() if "ROCK-" in line or "RK-" in line]


async def network_of(backend: DockerBackend) -> str:
    """Return the name of the backend's network, by one of its containers' labels or by making a box."""
    box = await backend.create(SandboxSpec(image=BUSYBOX), sandbox_id="asks")
    container = (await backend.census())["asks"].split()[1]
    label = '{{index .Config.Labels "rock.server"}}'
    state = await asyncio.to_thread(docker, "inspect", "--format", label, container)
    await box.close()
    return f"rock-{state}"


async def gateway(backend: DockerBackend) -> str:
    """Return this machine's address on the bridge."""
    described = json.loads(await asyncio.to_thread(docker, "network", "inspect", await network_of(backend)))
    return str(described[0]["IPAM"]["Config"][0]["Gateway"])


async def reaches(box: Sandbox, address: str, port: int) -> bool:
    result = await box.exec(["nc", "-w", "2", address, str(port)], stdin=b"ask\n", timeout_s=60)
    return result.stdout == b"answer\n"


async def serve(address: str, port: int = 0) -> asyncio.Server:
    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"answer\n")
        await writer.drain()
        writer.close()

    return await asyncio.start_server(answer, address, port)


async def test_only_what_is_listed_is_reached(backend: DockerBackend) -> None:
    closed = await backend.create(spec("203.0.113.0/24"), sandbox_id="closed")
    host = await gateway(backend)
    server = await serve(host)
    port = server.sockets[0].getsockname()[1]
    opened = await backend.create(spec("203.0.113.0/24", f"{host}/32"), sandbox_id="opened")
    public = await backend.create(spec("0.0.0.0/0"), sandbox_id="public")
    for _ in range(10):  # nc gives up early on a busy machine
        if await reaches(opened, host, port):
            break
    else:
        pytest.fail("what is listed is not reached")
    assert not await reaches(closed, host, port)
    assert not await reaches(public, host, port), "this machine is not the public internet"
    await opened.close()
    assert not [rule for rule in rules() if "opened" in rule]
    again = await backend.create(spec("203.0.113.0/24"), sandbox_id="same-address")
    assert not await reaches(again, host, port), "a used address brings no rights with it"
    server.close()
    await server.wait_closed()


async def test_a_listed_port_is_reached_and_no_other_of_its_machine(backend: DockerBackend) -> None:
    await (await backend.create(spec("203.0.113.0/24"), sandbox_id="first")).close()  # makes the bridge
    host = await gateway(backend)
    servers = [await serve(host), await serve(host)]
    ports = [server.sockets[0].getsockname()[1] for server in servers]
    box = await backend.create(spec(f"{host}:{ports[0]}"), sandbox_id="port")
    for _ in range(10):  # nc gives up early on a busy machine
        if await reaches(box, host, ports[0]):
            break
    else:
        pytest.fail("what is listed is not reached")
    assert not await reaches(box, host, ports[1])
    for server in servers:
        server.close()
        await server.wait_closed()


async def test_boxes_do_not_reach_one_another(backend: DockerBackend) -> None:
    one = await backend.create(spec("0.0.0.0/0"), sandbox_id="one")
    two = await backend.create(spec("0.0.0.0/0", "172.16.0.0/12", "192.168.0.0/16"), sandbox_id="two")
    address = (await one.exec(["hostname", "-i"])).stdout.decode().split()[0]
    script = "(while :; do echo answer | nc -l -p 9999; done) >/dev/null 2>&1 &"
    await one.exec(["sh", "-c", script])
    for _ in range(100):  # until it listens
        if await reaches(one, address, 9999):
            break
    else:
        pytest.fail("a box does not reach itself")
    assert not await reaches(two, address, 9999)
    assert b"inet6" not in (await one.exec(["ip", "addr", "show", "dev", "eth0"])).stdout
    looked_up = await two.exec(["nslookup", "-timeout=1", "example.com"], timeout_s=60)
    assert b"Address: " not in looked_up.stdout.partition(b"\n\n")[2], "no name server is a way out"


async def test_names_are_looked_up_here_and_pinned(backend: DockerBackend) -> None:
    with pytest.raises(InvalidArgument, match="private or link-local"):
        await backend.create(spec("localhost"), sandbox_id="no")
    with pytest.raises(InvalidArgument, match="cannot look up"):
        await backend.create(spec("no-such-name.invalid"), sandbox_id="no")
    assert not await backend.census()


@pytest.mark.parametrize(
    ("allow", "message"),
    [
        ((), "list host names"),
        (("10.0.0.1/8",), "host bits"),
        (("http://x",), "no host name"),
        (("-x",), "no host"),
    ],
)
async def test_a_bad_list_is_refused(backend: DockerBackend, allow: tuple[str, ...], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        await backend.create(spec(*allow), sandbox_id="no")


async def test_a_killed_server_leaves_no_open_door(engine: None, bundles: Path, tmp_path: Path) -> None:  # noqa: F811
    first = DockerBackend(root=tmp_path / "state", bundles=bundles)
    box = await first.create(spec("203.0.113.0/24"), sandbox_id="lost", durable=True)
    kept = await first.create(spec("203.0.113.0/24"), sandbox_id="kept", durable=True)
    (tmp_path / "state" / "boxes" / "lost").rename(tmp_path / "away")
    await first.let_go()
    second = DockerBackend(root=tmp_path / "state", bundles=bundles)
    await second.census()
    assert not [rule for rule in rules() if "comment lost" in rule]
    assert [rule for rule in rules() if "comment kept" in rule]
    for sandbox_id in (box.id, kept.id):
        await second.destroy(sandbox_id)
    await second.close()
    state = (tmp_path / "state" / "docker-id").read_text()
    assert not [rule for rule in rules() if state in rule]
