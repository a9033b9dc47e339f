"""A warm pool of real servers that share a real PostgreSQL: its size is that of all together, whoever is asked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence

import pytest
from integration.replica_fleet import Fleet, Server, running_fleet

from rock_env.proto.v1 import admin_pb2
from rock_env.proto.v1 import sandbox_pb2 as pb
from rock_env.spec import SandboxSpec
from rock_env.wire.sandboxes import spec_message


@pytest.fixture
async def fleet(new_database: Callable[[], str]) -> AsyncIterator[Fleet]:
    async with running_fleet(new_database()) as made:
        yield made


async def ready(server: Server) -> int:
    pools = (await server.admin.ListPools(admin_pb2.ListPoolsRequest())).pools
    return sum(pool.ready for pool in pools)


async def until_ready(servers: Sequence[Server], *counts: int) -> None:
    found: list[int] = []
    for _ in range(600):
        found = sorted([await ready(server) for server in servers])
        if found == list(counts):
            return
        await asyncio.sleep(0.1)
    pytest.fail(f"{found} boxes are ready, not {list(counts)}")


async def test_a_pool_is_stocked_by_all_and_survives_each(fleet: Fleet) -> None:
    first, second = await fleet.start(), await fleet.start()
    spec = spec_message(SandboxSpec())
    await second.admin.SetPool(admin_pb2.SetPoolRequest(spec=spec, size=3))
    await until_ready([first, second], 1, 2)
    made = await first.boxes.Create(pb.CreateSandboxRequest(spec=spec))
    (pool,) = (await first.admin.ListPools(admin_pb2.ListPoolsRequest())).pools
    assert pool.hits == 1
    await first.boxes.Delete(pb.DeleteSandboxRequest(id=made.id))
    second.kill()
    await second.ended()
    await until_ready([first], 3)
    assert not (fleet.folder / "pools.json").exists()
    third = await fleet.start()
    await until_ready([first, third], 1, 2)
    await third.admin.SetPool(admin_pb2.SetPoolRequest(spec=spec, size=0))
    await until_ready([first, third], 0, 0)
