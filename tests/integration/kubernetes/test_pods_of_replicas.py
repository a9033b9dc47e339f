"""Pods outlive the server that made them: another node's server, with another state folder, takes them up."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import pytest
from integration.replica_fleet import LEASE_S, Fleet, Server, run, running_fleet
from kubernetes_cluster import guest_image, kubectl, namespace, tools_image  # noqa: F401  fixtures
from lost_calls import lost

from rock_env.proto.v1 import admin_pb2
from rock_env.proto.v1 import sandbox_pb2 as pb

SPEC = pb.SandboxSpec(resources=pb.Resources(cpus=1, memory_bytes=128 << 20, disk_bytes=128 << 20))
TAKEN_UP = "taken up again after a restart"


@pytest.fixture
async def fleet(new_database: Callable[[], str]) -> AsyncIterator[Fleet]:
    async with running_fleet(new_database()) as made:
        yield made


@pytest.fixture
def start(
    fleet: Fleet,
    guest_image: str,  # noqa: F811
    tools_image: str,  # noqa: F811
    namespace: str,  # noqa: F811
) -> Callable[[str], Awaitable[Server]]:
    """Start a server of a node, with a state folder of its own."""
    backend = (
        f"kubernetes:namespace={namespace},guest={guest_image},image={tools_image},profile=image,reserved=0.1"
    )

    async def node(name: str) -> Server:
        return await fleet.start(
            "--insecure",
            f"--node={name}",
            f"--state={fleet.folder / name}",
            f"--backend={backend}",
            "--drain-s=3",
        )

    return node


async def persisting(act: Callable[[], Awaitable[Any]]) -> Any:
    """Do what a client does: ask again when a server was not available."""
    give_up_at = time.monotonic() + 90
    while True:
        try:
            return await act()
        except (grpc.aio.AioRpcError, ConnectionError) as error:
            if not (isinstance(error, ConnectionError) or lost(error)) or time.monotonic() > give_up_at:
                raise
            await asyncio.sleep(0.1)


async def with_a_command(server: Server) -> tuple[str, str]:
    """Make a box with a file and a command that goes on, which has said something; return both ids."""
    made = await server.boxes.Create(pb.CreateSandboxRequest(spec=SPEC), timeout=120)
    await run(server.boxes, made.id, "echo kept > f")
    script = "echo began; while [ ! -e go ]; do sleep 0.1; done; echo went on"
    process = await server.boxes.StartProcess(
        pb.StartProcessRequest(start=pb.ExecStart(sandbox_id=made.id, argv=["bash", "-c", script]))
    )
    return made.id, process.process_id


async def goes_on(server: Server, sandbox_id: str, process_id: str) -> None:
    """Check that a server serves the box with its file, and its command with what it said before."""
    assert await persisting(lambda: run(server.boxes, sandbox_id, "cat f; touch go")) == b"kept\n"
    logs = server.boxes.ProcessLogs(pb.ProcessLogsRequest(process_id=process_id, follow=True), timeout=60)
    said = b"".join([event.stdout.data async for event in logs])
    assert said == b"began\nwent on\n"
    info = await server.boxes.Get(pb.GetSandboxRequest(id=sandbox_id))
    assert (info.state, info.history[-1].reason) == (pb.SANDBOX_STATE_RUNNING, TAKEN_UP)


async def test_another_nodes_server_serves_the_boxes_of_one_that_was_killed(
    start: Callable[[str], Awaitable[Server]],
) -> None:
    first, second = await start("a"), await start("b")
    box = await with_a_command(first)
    first.kill()
    killed_at = time.monotonic()
    await goes_on(second, *box)
    print(f"taken up within {time.monotonic() - killed_at:.1f} s, with a lease of {LEASE_S:g} s")  # noqa: T201
    await first.ended()


async def test_another_nodes_server_serves_the_boxes_of_one_that_drained(
    start: Callable[[str], Awaitable[Server]],
) -> None:
    first = await start("a")
    box = await with_a_command(first)
    second = await start("b")
    first.process.terminate()
    assert await first.ended() == 0
    await goes_on(second, *box)


async def test_a_pod_waits_for_the_next_server_where_none_is_left(
    start: Callable[[str], Awaitable[Server]],
) -> None:
    first = await start("a")
    box = await with_a_command(first)
    first.process.terminate()
    assert await first.ended() == 0
    await goes_on(await start("b"), *box)


async def test_servers_leave_each_others_stock_alone_and_that_of_the_dead_is_removed(
    start: Callable[[str], Awaitable[Server]],
    namespace: str,  # noqa: F811
) -> None:
    async def stock() -> set[str]:
        listed = await asyncio.to_thread(kubectl, "-n", namespace, "get", "pods", "-o", "json")
        names = [it["metadata"]["annotations"]["rock.sandbox"] for it in json.loads(listed)["items"]]
        return {name for name in names if name.startswith("pool-")}

    async def has_in_stock(server: Server, size: int) -> None:
        async with asyncio.timeout(90):
            while (  # noqa: ASYNC110
                sum(it.ready for it in (await server.admin.ListPools(admin_pb2.ListPoolsRequest())).pools)
                != size
            ):
                await asyncio.sleep(0.2)

    first = await start("a")
    await first.admin.SetPool(admin_pb2.SetPoolRequest(spec=SPEC, size=2))
    await has_in_stock(first, 2)
    alone = await stock()
    second = await start("b")
    await has_in_stock(second, 1)
    await has_in_stock(first, 1)
    of_first = alone & await stock()
    assert len(of_first) == 1, (
        "the first gives up what is beyond its part now; the second leaves the rest alone"
    )
    for server in (first, second):
        (counted,) = (await server.admin.Census(admin_pb2.CensusRequest(sweep=True))).backends
        assert (counted.stock, dict(counted.orphans)) == (2, {})
    first.kill()
    await first.ended()
    await has_in_stock(second, 2)
    async with asyncio.timeout(90):
        while of_first & await stock():  # noqa: ASYNC110
            await asyncio.sleep(0.5)
    assert len(await stock()) == 2
