"""Admission, groups and pools as callers meet them: over a real socket, on real processes."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from typing import Any

import grpc
import pytest
from waiting import until

from rock_env.backends.process.backend import ProcessBackend
from rock_env.client.retry import rock_error
from rock_env.errors import InfraError, InvalidArgument, ResourceExhausted, Unavailable
from rock_env.guest_host.box import GuestBox
from rock_env.inventory import Amount
from rock_env.lifecycle import SandboxState, born
from rock_env.proto.v1 import admin_pb2, admin_pb2_grpc
from rock_env.proto.v1 import sandbox_pb2 as pb
from rock_env.proto.v1.sandbox_pb2_grpc import SandboxServiceStub
from rock_env.server.node import Node
from rock_env.server.options import ServerOptions
from rock_env.server.sandboxes.core import SandboxCore
from rock_env.server.services.places import PlaceCalls
from rock_env.server.services.sandboxes import add_sandbox_service
from rock_env.spec import SandboxSpec
from rock_env.store.sqlite.records import SqliteStore


class Admin(PlaceCalls, admin_pb2_grpc.AdminServiceServicer):  # type: ignore[misc]
    """The AdminService, as far as it is about places."""


class Boxes(ProcessBackend):
    """Process boxes that fail for one working folder."""

    async def create(self, spec: SandboxSpec, **options: Any) -> GuestBox:
        if spec.workdir == "/broken":
            raise InfraError("no such box today")
        return await super().create(spec, **options)


class Place:
    """A server that holds three boxes, two of them for one tenant at most, seen from its clients."""

    def __init__(self, core: SandboxCore, node: Node, boxes: Boxes, channel: Any) -> None:
        self.core, self.node, self.boxes = core, node, boxes
        self.sandboxes = SandboxServiceStub(channel)
        self.admin = admin_pb2_grpc.AdminServiceStub(channel)

    async def create(self, timeout_s: float = 30.0, **fields: Any) -> pb.SandboxInfo:
        return await self.sandboxes.Create(pb.CreateSandboxRequest(**fields), timeout=timeout_s)

    async def create_many(
        self, *items: pb.CreateSandboxRequest, key: str = "", timeout_s: float = 30.0
    ) -> list[Any]:
        request = pb.CreateManyRequest(items=items, idempotency_key=key)
        return list((await self.sandboxes.CreateMany(request, timeout=timeout_s)).sandboxes)

    async def delete(self, sandbox_id: str) -> None:
        await self.sandboxes.Delete(pb.DeleteSandboxRequest(id=sandbox_id))

    @property
    def used(self) -> int:
        return self.node.admission.used.boxes


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    (tmp_path / "quotas.toml").write_text("[capacity]\nboxes = 3\n")
    (tmp_path / "boxes").mkdir()
    boxes = Boxes(root=tmp_path / "boxes", isolation="none")
    server = grpc.aio.server()
    async with (
        Node.open(ServerOptions(quotas=str(tmp_path / "quotas.toml"))) as node,
        await SqliteStore.open() as store,
    ):
        router = node.pooled(boxes)
        async with SandboxCore(router, store, admission=node.admission, pin=node.pin) as core:
            add_sandbox_service(server, core)
            admin = Admin()
            admin.places = node.open_for(server, core)
            admin_pb2_grpc.add_AdminServiceServicer_to_server(admin, server)
            server.add_insecure_port(f"unix://{tmp_path}/socket")
            await server.start()
            async with grpc.aio.insecure_channel(f"unix://{tmp_path}/socket") as channel:
                yield Place(core, node, boxes, channel)
            core.stop()
            await server.stop(None)
        assert node.admission.used == Amount(), "every place came back"
        await router.close()


async def refused(act: Awaitable[Any]) -> Any:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await act
    return rock_error(caught.value, "here")[0]


async def test_a_full_server_refuses_with_position_and_when_to_come_back(place: Place) -> None:
    held = [await place.create() for _ in range(3)]
    error = await refused(place.create(timeout_s=0.7))
    assert isinstance(error, ResourceExhausted)
    assert error.queue_position == 1
    assert error.retry_after_s
    assert "Position 1 in its queue" in error.message
    assert place.used == 3
    waits = asyncio.create_task(place.create())
    await until(lambda: place.node.admission.waiting == 1)
    await place.delete(held[0].id)
    made = await waits
    assert [change.reason for change in made.history] == ["asked for", "waiting for a place", "started"]


async def test_a_fork_waits_for_its_places_as_long_as_its_caller(place: Place) -> None:
    held = [await place.create() for _ in range(3)]
    request = pb.ForkSandboxRequest(id=held[0].id, count=1)
    error = await refused(place.sandboxes.Fork(request, timeout=0.7))
    assert isinstance(error, ResourceExhausted)
    assert (place.used, place.node.admission.waiting) == (3, 0)


async def test_who_waits_can_be_deleted_and_ends_by_its_deadlines(place: Place) -> None:
    for _ in range(3):
        await place.create()
    waits = asyncio.create_task(place.create(labels={"who": "waits"}))
    await until(lambda: place.node.admission.waiting == 1)
    (info,) = (await place.sandboxes.List(pb.ListSandboxesRequest(labels={"who": "waits"}))).sandboxes
    assert (info.state, info.reason) == (pb.SANDBOX_STATE_STARTING, "waiting for a place")
    await place.delete(info.id)
    assert "ended while it waited for a place: deleted by its user" in (await refused(waits)).message
    brief = pb.CreateSandboxRequest()
    brief.lease.FromMilliseconds(100)
    assert "its lease expired" in (await refused(place.sandboxes.Create(brief))).message
    assert (place.used, place.node.admission.waiting) == (3, 0)


async def test_a_server_that_stops_waits_for_no_place(place: Place) -> None:
    for _ in range(3):
        await place.create()
    waits = asyncio.create_task(place.create(timeout_s=60))
    await until(lambda: place.node.admission.waiting == 1)
    place.core.stop()
    error = await refused(waits)
    assert isinstance(error, Unavailable)
    assert "the server is stopping" in error.message


async def test_a_place_comes_back_however_the_box_goes(place: Place) -> None:
    error = await refused(place.create(spec=pb.SandboxSpec(workdir="/broken")))
    assert isinstance(error, InfraError)
    assert place.used == 0, "a box that never was holds nothing"
    made = await place.create()
    os.kill(place.boxes._boxes[made.id].box.pid, signal.SIGKILL)
    await until(lambda: place.core.ledger.held[made.id].record.state is SandboxState.FAILED)
    assert place.used == 1, "what failed is there until it is deleted"
    await place.delete(made.id)
    assert place.used == 0
    brief = pb.CreateSandboxRequest(idempotency_key="k")
    brief.lease.FromMilliseconds(50)
    await place.sandboxes.Create(brief)
    await until(lambda: place.used == 0)


async def test_a_repeated_create_takes_one_place(place: Place) -> None:
    made = [await place.create(idempotency_key="k") for _ in range(5)]
    assert len({info.id for info in made}) == 1
    assert place.used == 1


async def test_what_never_fits_is_refused_at_once(place: Place) -> None:
    spec = pb.SandboxSpec(resources=pb.Resources(memory_bytes=1 << 50))
    error = await refused(place.create(spec=spec))
    assert isinstance(error, InvalidArgument)
    assert "can never be granted" in error.message
    error = await refused(place.create_many(*[pb.CreateSandboxRequest()] * 4))
    assert "it takes 4 boxes, and this server's capacity is 3" in error.message
    for items in ((), [pb.CreateSandboxRequest()] * 1025):
        assert "a group must be of 1 to 1024" in (await refused(place.create_many(*items))).message
    assert place.used == 0


async def test_two_groups_that_each_need_most_of_the_node_both_get_it(place: Place) -> None:
    one = await place.create()
    groups = [asyncio.create_task(place.create_many(*[pb.CreateSandboxRequest()] * 3)) for _ in range(2)]
    await until(lambda: place.node.admission.waiting == 2)
    assert place.used == 1, "a group holds nothing while it waits"
    await place.delete(one.id)
    done, waiting = await asyncio.wait(groups, return_when=asyncio.FIRST_COMPLETED)
    for info in next(iter(done)).result():
        await place.delete(info.id)
    assert len(await next(iter(waiting))) == 3
    assert place.used == 3


async def test_a_group_is_made_all_or_none_and_its_key_free_again(place: Place) -> None:
    good, broken = pb.CreateSandboxRequest(), pb.CreateSandboxRequest(spec=pb.SandboxSpec(workdir="/broken"))
    error = await refused(place.create_many(good, broken, good, key="g"))
    assert "no such box today" in error.message
    await until(lambda: place.used == 0)
    assert list((await place.sandboxes.List(pb.ListSandboxesRequest())).sandboxes) == []
    made = await place.create_many(good, good, key="g")
    again = await place.create_many(good, good, key="g")
    assert [info.id for info in again] == [info.id for info in made]
    assert place.used == 2
    error = await refused(place.create_many(good, key="g"))
    assert "used for another group" in error.message
    error = await refused(place.create_many(pb.CreateSandboxRequest(idempotency_key="own"), key="h"))
    assert "need none of their own" in error.message


async def test_a_group_that_does_not_fit_in_time_leaves_nothing(place: Place) -> None:
    await place.create()
    error = await refused(place.create_many(*[pb.CreateSandboxRequest()] * 3, timeout_s=0.7))
    assert isinstance(error, ResourceExhausted)
    assert "no place for 3 sandboxes" in error.message
    assert (place.used, place.node.admission.waiting) == (1, 0)


async def test_an_operator_sets_quotas_and_sees_what_is_held(place: Place) -> None:
    await place.create()
    limits = admin_pb2.Limits(boxes=1)
    changed = await place.admin.SetQuota(admin_pb2.SetQuotaRequest(limits=limits, weight=2))
    assert (changed.limits.boxes, changed.limits.HasField("cpus"), changed.weight, changed.used.boxes) == (
        1,
        False,
        2,
        1,
    )
    error = await refused(place.create(timeout_s=0.7))
    assert "its quota is used up" in error.message
    shown = await place.admin.ListQuotas(admin_pb2.ListQuotasRequest())
    assert (shown.capacity.boxes, shown.used.boxes, [tenant.tenant for tenant in shown.tenants]) == (
        3,
        1,
        [""],
    )
    error = await refused(place.admin.SetQuota(admin_pb2.SetQuotaRequest(tenant="Bad Name")))
    assert "bad tenant name" in error.message


async def test_a_pool_serves_creates_and_is_no_orphan(place: Place) -> None:
    info = await place.admin.SetPool(admin_pb2.SetPoolRequest(spec=pb.SandboxSpec(), size=1))
    assert (info.target, info.backend) == (1, "process")
    pooled = next(iter(place.core.backends))
    await until(lambda: pooled.status()[0].ready == 1)  # type: ignore[attr-defined]
    assert place.used == 0, "stock takes nobody's place"
    (counted,) = await place.core.census(sweep=True)
    assert (counted.stock, dict(counted.orphans), counted.boxes) == (1, {}, 1)
    made = await place.create()
    assert place.core.ledger.held[made.id].record.box_id.startswith("pool-")
    read = place.sandboxes.ReadFile(pb.ReadFileRequest(sandbox_id=made.id, path="/proc/self/none"))
    assert (await refused(read.read())).code in ("not_found", "invalid_argument")
    (counted,) = await place.core.census(sweep=True)
    assert dict(counted.orphans) == {}
    shown = (await place.admin.ListPools(admin_pb2.ListPoolsRequest())).pools
    assert [(pool.hits, pool.misses, pool.digest) for pool in shown] == [(1, 0, info.digest)]
    error = await refused(place.admin.SetPool(admin_pb2.SetPoolRequest(spec=pb.SandboxSpec(), size=4)))
    assert "more than this server holds" in error.message
    await place.admin.SetPool(admin_pb2.SetPoolRequest(spec=pb.SandboxSpec(), size=0))
    await place.delete(made.id)


async def test_what_an_earlier_server_held_is_counted_until_it_is_gone(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "records.db")
    await store.add(born("sb-1", SandboxSpec(), backend="process", at=0.0))
    backend = ProcessBackend(root=tmp_path, isolation="none")
    async with SandboxCore(backend, store) as core:
        assert core.admission.used == Amount(), "its box was gone with its server"
    await backend.close()
    await store.close()
