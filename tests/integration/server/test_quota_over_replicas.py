"""A tenant's quota over servers that share a real PostgreSQL: it holds for all of them together, also at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

import grpc
import pytest
from integration.replica_fleet import Fleet, Server, refusal, running_fleet

from rock_env.inventory import Amount, Limits
from rock_env.lifecycle import SandboxRecord, SandboxState, born, transition
from rock_env.proto.v1 import admin_pb2
from rock_env.proto.v1 import sandbox_pb2 as pb
from rock_env.server.replicas.places import SharedPlaces
from rock_env.spec import Resources, SandboxSpec
from rock_env.store.open import open_store
from rock_env.store.postgres.records import PostgresStore

QUOTA = 5


@pytest.fixture
async def fleet(new_database: Callable[[], str]) -> AsyncIterator[Fleet]:
    async with running_fleet(new_database()) as made:
        yield made


async def limited(server: Server, boxes: int) -> None:
    limit = admin_pb2.SetQuotaRequest(limits={"boxes": boxes})
    await server.admin.SetQuota(limit)


async def created(server: Server, wait_s: float) -> str:
    """Return a sandbox's id, or the code of the refusal."""
    try:
        return str((await server.boxes.Create(pb.CreateSandboxRequest(), timeout=wait_s)).id)
    except grpc.aio.AioRpcError as error:
        return error.code().name


async def held(server: Server) -> int:
    (mine,) = (await server.admin.ListQuotas(admin_pb2.ListQuotasRequest())).tenants
    return int(mine.used.boxes)


async def test_a_quota_holds_over_all_replicas(fleet: Fleet) -> None:
    servers = [await fleet.start() for _ in range(3)]
    await limited(servers[0], QUOTA)
    for server in servers:  # told to all
        await until_limited(server, QUOTA)
    outcomes = await asyncio.gather(*(created(servers[n % 3], 4.0) for n in range(3 * QUOTA)))
    made = [each for each in outcomes if each.startswith("sb-")]
    assert len(made) == QUOTA
    assert {each for each in outcomes if not each.startswith("sb-")} == {"RESOURCE_EXHAUSTED"}
    assert [await held(server) for server in servers] == [QUOTA] * 3
    # A place that comes free at one server is taken at another, which waits and does not ask again and again.
    waiting = asyncio.ensure_future(created(servers[1], 60.0))
    await servers[0].boxes.Delete(pb.DeleteSandboxRequest(id=made[0]))
    assert (await waiting).startswith("sb-")
    said = await refusal(servers[2].boxes.Create(pb.CreateSandboxRequest(), timeout=1.5))
    assert said[0] == "RESOURCE_EXHAUSTED"
    assert "its quota is used up" in said[1]
    assert float(said[2]["rock-retry-after-s"]) > 0


async def until_limited(server: Server, boxes: int) -> None:
    while True:
        told = (await server.admin.ListQuotas(admin_pb2.ListQuotasRequest())).tenants
        if [mine.limits.boxes for mine in told] == [boxes]:
            return
        await asyncio.sleep(0.02)


async def test_a_dead_replicas_boxes_count_until_they_end(fleet: Fleet) -> None:
    first, second = await fleet.start(), await fleet.start()
    await limited(first, QUOTA)
    await until_limited(second, QUOTA)
    made = [await created(first, 30.0) for _ in range(QUOTA)]
    assert all(each.startswith("sb-") for each in made)
    first.kill()
    await first.ended()
    assert await created(second, 4.0) == "RESOURCE_EXHAUSTED"
    for each in made:
        await second.boxes.Delete(pb.DeleteSandboxRequest(id=each), timeout=60)
    assert await held(second) == 0
    assert (await created(second, 30.0)).startswith("sb-")


async def test_a_group_gets_all_of_its_places_or_none(fleet: Fleet) -> None:
    first, second = await fleet.start(), await fleet.start()
    await limited(first, QUOTA)
    await until_limited(second, QUOTA)
    for _ in range(QUOTA - 1):
        await created(first, 30.0)
    many = pb.CreateManyRequest(items=[pb.CreateSandboxRequest()] * 2)
    assert (await refusal(second.boxes.CreateMany(many, timeout=20.0)))[0] == "RESOURCE_EXHAUSTED"
    while (now := await held(second)) != QUOTA - 1:
        assert now == QUOTA, "never more than the quota, while the group is undone"
        await asyncio.sleep(0.05)


async def test_quotas_of_a_state_folder_move_into_the_store(fleet: Fleet) -> None:
    kept = b'{"tenants":{"":{"limits":{"boxes":7,"cpus":null,"memory_bytes":null},"weight":2.0}}}'
    (fleet.folder / "quotas.json").write_bytes(kept)
    first = await fleet.start()
    await until_limited(first, 7)
    await limited(first, 9)
    (fleet.folder / "quotas.json").write_bytes(kept)
    second = await fleet.start()
    await until_limited(second, 9)  # what the store has goes before


# -- the store by itself


@pytest.fixture
async def store(new_database: Callable[[], str]) -> AsyncIterator[PostgresStore]:
    async with await open_store(new_database()) as opened:
        assert isinstance(opened, PostgresStore)
        yield opened


async def recorded(store: PostgresStore, number: int, tenant: str = "t") -> SandboxRecord:
    spec = SandboxSpec(resources=Resources(cpus=1.5, memory_bytes=1 << 30))
    record = born(f"sb-{number}", spec, at=float(number), backend="process")
    return await store.add(replace(record, tenant=tenant))


async def test_places_are_counted_exactly_however_many_ask(store: PostgresStore) -> None:
    places = SharedPlaces(store)
    records = [await recorded(store, number) for number in range(40)]

    async def take(record: SandboxRecord, limits: Limits) -> bool:
        return await places.take(record, limits)

    for limits, fit in ((Limits(boxes=7), 7), (Limits(cpus=15.0), 10), (Limits(memory_bytes=12 << 30), 12)):
        taken = await asyncio.gather(*(take(record, limits) for record in records))
        assert sum(taken) == fit
    assert await places.held() == {"t": Amount(12, 18000, 12 << 30)}
    assert await take(next(it for it, got in zip(records, taken, strict=True) if got), Limits(boxes=0)), (
        "its own"
    )


@pytest.mark.parametrize("state", [SandboxState.FAILED, SandboxState.DELETING])
async def test_a_place_goes_back_with_its_record(store: PostgresStore, state: SandboxState) -> None:
    places = SharedPlaces(store)
    record = await recorded(store, 1)
    with places.given_back() as told:
        assert await places.take(record, Limits(boxes=1))
        other = await recorded(store, 2)
        assert not await places.take(other, Limits(boxes=1))
        assert await places.take(await recorded(store, 3, "u"), Limits(boxes=1))
        told.clear()
        ended = await store.save(transition(record, state, at=2.0, reason="over"))
        if state is SandboxState.DELETING:
            assert not await places.take(other, Limits(boxes=1)), "its box is not gone yet"
            ended = await store.save(transition(ended, SandboxState.DELETED, at=3.0, reason="over"))
        await told.wait()
    assert await places.take(other, Limits(boxes=1))
    # What ended holds nothing, though it asks.
    assert await places.take(ended, Limits(boxes=2))
    assert (await places.held())["t"].boxes == 1
    assert await places.take(replace(record, id="sb-unknown"), Limits())
    assert (await places.held())["t"].boxes == 1
