"""Boxes at a site, which any server of the store takes up: who owns them, what ends them, whose stock is whose."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from memory_backend import Box, Layer, MemoryBackend, Node
from waiting import until

from rock_env.backends.pool import PooledBackend
from rock_env.errors import FailedPrecondition, RockError, Unavailable
from rock_env.lifecycle import SandboxRecord, SandboxState, born, transition
from rock_env.server.replicas.member import Replica
from rock_env.server.replicas.seats import Seat
from rock_env.server.sandboxes.checkpoints import CheckpointTree, TreeWish
from rock_env.server.sandboxes.core import SandboxCore, SandboxWish
from rock_env.snapshots import SnapshotState
from rock_env.spec import SandboxSpec
from rock_env.store.postgres.members import Members
from rock_env.store.postgres.records import PostgresStore

RUNNING, DELETED = SandboxState.RUNNING, SandboxState.DELETED
SITE = "@process/east/boxes"
LEASE_S = 600


class SiteBackend(MemoryBackend):
    """One server's view of what many servers reach."""

    site = "east/boxes"


class SlowSiteBackend(SiteBackend):
    """It takes a box up when it may."""

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        self.may = asyncio.Event()

    async def adopt(self, *args: Any, **options: Any) -> Any:
        await self.may.wait()
        return await super().adopt(*args, **options)


class SnapshotSiteBackend(SiteBackend):
    """Its snapshots are there, too."""

    snapshot_site = "east/boxes"


@dataclass
class Server:
    """A replica with its core and pool."""

    replica: Replica
    core: SandboxCore
    pool: PooledBackend

    @property
    def held(self) -> set[str]:
        return set(self.core.ledger.held)

    def has_box(self, sandbox_id: str) -> bool:
        held = self.core.ledger.held.get(sandbox_id)
        return held is not None and held.box is not None


@pytest.fixture
async def store(new_database: Callable[[], str]) -> AsyncIterator[PostgresStore]:
    async with await PostgresStore.open(new_database()) as opened:
        yield opened


@asynccontextmanager
async def server(
    store: PostgresStore, root: Path, name: str, backend: MemoryBackend, *, lease_s: float = LEASE_S
) -> AsyncIterator[Server]:
    """Run a server with a node's name and state folder of its own."""
    folder = root / name
    await asyncio.to_thread(folder.mkdir, exist_ok=True)
    pool = PooledBackend(backend, durable=True)  # type: ignore[arg-type]  # its boxes have what is asked of them here
    seat = Seat(
        own_id=f"{name}:1",
        node=name,
        folder=name * 8,
        address=f"unix://{folder}/sock",
        witnesses=folder,
        environments=f"e{name}",
        sites=frozenset({f"@{backend.name}/{backend.site}"} if isinstance(backend, SiteBackend) else ()),
        lease_s=lease_s,
    )
    pool.maker = seat.environments
    async with (
        Replica.joined(store, seat) as one,
        SandboxCore(pool, store, durable=True, ownership=one) as core,
        one.serve(core),
    ):
        await asyncio.sleep(0)  # what it does all the time has begun
        yield Server(one, core, pool)
    await pool.let_go()


def dead_ones(sandbox_id: str, *, lease_s: float = LEASE_S, **fields: Any) -> SandboxRecord:
    """Return the record of a box at the site whose server, on another node, is gone."""
    now = time.time()
    made = born(sandbox_id, SandboxSpec(), backend="process", at=now, lease_s=lease_s)
    known = {"durable": True, "owner": "gone:", "folder": SITE, **fields}
    return replace(transition(made, RUNNING, at=now), **known)


async def owner_of(store: PostgresStore, sandbox_id: str) -> str:
    record = await store.get(sandbox_id)
    assert record is not None
    return record.owner


async def test_a_box_says_where_it_is_and_a_server_that_left_leaves_it_to_any_other(
    store: PostgresStore, tmp_path: Path
) -> None:
    site = Node()
    async with AsyncExitStack() as first_life, server(store, tmp_path, "b", SiteBackend(site)) as second:
        first = await first_life.enter_async_context(server(store, tmp_path, "a", SiteBackend(site)))
        made = await first.core.create(SandboxWish(SandboxSpec()))
        assert (made.owner, made.folder) == ("a:1", SITE)
        async with first.core.using(made.id) as box:
            await box.write_file("f", b"kept")
        found = await second.replica.route(made.id, "")
        assert found is not None
        assert (found[0].id, found[1]) == ("a:1", True), "it is the other's, and taken over when that is gone"
        await first_life.aclose()
        await until(lambda: second.has_box(made.id))
        assert await owner_of(store, made.id) == "b:1"
        async with second.core.using(made.id) as box:
            assert await box.read_file("f") == b"kept"
        assert (await second.core.get(made.id)).folder == SITE


async def test_a_box_that_is_being_taken_up_is_asked_for_again(store: PostgresStore, tmp_path: Path) -> None:
    site = Node()
    slow = SlowSiteBackend(site)
    async with AsyncExitStack() as first_life, server(store, tmp_path, "b", slow) as second:
        first = await first_life.enter_async_context(server(store, tmp_path, "a", SiteBackend(site)))
        made = await first.core.create(SandboxWish(SandboxSpec()))
        await first_life.aclose()
        await until(lambda: made.id in second.held)
        with pytest.raises(Unavailable, match=r"is being taken up by this server\. Ask again"):
            async with second.core.using(made.id):
                pass
        slow.may.set()
        await until(lambda: second.has_box(made.id))
        async with second.core.using(made.id) as box:
            await box.write_file("f", b"here")


async def test_of_many_servers_one_takes_a_box_up(store: PostgresStore, tmp_path: Path) -> None:
    site = Node()
    names = [f"sb-{at}" for at in range(20)]
    async with AsyncExitStack() as stack:
        servers = [
            await stack.enter_async_context(server(store, tmp_path, name, SiteBackend(site)))
            for name in "abc"
        ]
        members = Members(store)
        await members.join("m:1", node="m", folder="", address="unix:///m", sites=[SITE], lease_s=LEASE_S)
        for name in names:
            await store.add(dead_ones(name, owner="m:1"))
            site.boxes[name] = Box()
        await members.leave("m:1")
        await until(lambda: sum(len(each.held) for each in servers) >= len(names))
        await asyncio.gather(*(each.replica.take_all() for each in servers))
        held = [name for each in servers for name in each.held]
        assert sorted(held) == sorted(names), "each by one server"
        for each in servers:
            for name in each.held:
                assert await owner_of(store, name) == each.replica.id


async def test_who_lost_a_box_cannot_write_about_it_any_more(store: PostgresStore, tmp_path: Path) -> None:
    site = Node()
    async with (
        server(store, tmp_path, "a", SiteBackend(site)) as first,
        server(store, tmp_path, "b", SiteBackend(site)) as second,
    ):
        made = await first.core.create(SandboxWish(SandboxSpec()))
        await first.replica.members.leave("a:1")  # declared dead, as one that was stopped too long is
        await until(lambda: made.id in second.held)
        with pytest.raises(RockError):
            await store.save(replace(made, owner="a:1"))
        await first.replica._reborn()
        assert first.held == set()
        assert await owner_of(store, made.id) == "b:1"


async def test_a_drain_hands_over_what_another_server_reaches(store: PostgresStore, tmp_path: Path) -> None:
    site = Node()
    async with (
        server(store, tmp_path, "a", SiteBackend(site)) as first,
        server(store, tmp_path, "b", MemoryBackend(Node())),  # reaches no site
    ):
        made = await first.core.create(SandboxWish(SandboxSpec()))
        async with server(store, tmp_path, "c", SiteBackend(site)) as third:
            assert await first.replica.hand_over(10) == 1
            await until(lambda: made.id in third.held)
            assert (await store.get(made.id)).folder == SITE  # type: ignore[union-attr]


async def test_a_drain_keeps_what_nobody_else_reaches(store: PostgresStore, tmp_path: Path) -> None:
    async with (
        server(store, tmp_path, "a", SiteBackend(Node())) as first,
        server(store, tmp_path, "b", MemoryBackend(Node())),
    ):
        made = await first.core.create(SandboxWish(SandboxSpec()))
        assert await first.replica.hand_over(10) == 0
        assert first.held == {made.id}


async def test_only_who_reaches_the_site_takes_a_box_up_and_no_reaper_ends_it_before(
    store: PostgresStore, tmp_path: Path
) -> None:
    """The record is over its lease: whoever is of its site ends it with its box, nobody else while one lives."""
    site = Node()
    async with server(store, tmp_path, "a", MemoryBackend(Node())) as other:
        left = await store.add(dead_ones("sb-1"))
        assert await other.replica.claim(left) is None
        with pytest.raises(
            Unavailable, match="is at '@process/east/boxes', and no server that reaches this runs"
        ):
            await other.replica.route("sb-1", "")
        site.boxes["sb-1"] = Box()
        async with server(store, tmp_path, "b", SiteBackend(site)) as second:
            await until(lambda: "sb-1" in second.held)
            assert (await second.core.get("sb-1")).state is RUNNING


async def test_a_record_ends_with_its_lease_where_nobody_reaches_its_site(
    store: PostgresStore, tmp_path: Path
) -> None:
    members = Members(store)
    await members.join("m:1", node="m", folder="", address="unix:///m", sites=[SITE], lease_s=LEASE_S)
    await store.add(dead_ones("sb-1", lease_s=-1))
    async with server(store, tmp_path, "a", MemoryBackend(Node())):
        await asyncio.sleep(0.3)
        assert (await store.get("sb-1")).state is RUNNING, "a server of its site lives"  # type: ignore[union-attr]
        await members.leave("m:1")

        async def over() -> SandboxRecord:
            while (now := await store.get("sb-1")) is None or now.state is not DELETED:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
            return now

        async with asyncio.timeout(20):
            ended = await over()
        assert ended.reason == "its lease expired, and no server that reaches '@process/east/boxes' lives"


async def test_a_box_at_a_site_does_not_hold_its_node_for_a_state_folder(store: PostgresStore) -> None:
    members = Members(store)
    await store.add(dead_ones("sb-1", owner="n:"))
    await members.join("n:1", node="n", folder="another", address="unix:///n", lease_s=LEASE_S)
    assert list(await members.all()) == ["n:1"]
    await store.add(dead_ones("sb-2", owner="o:", folder="aaa"))
    with pytest.raises(FailedPrecondition, match="1 live sandboxes are there"):
        await members.join("o:1", node="o", folder="another", address="unix:///o", lease_s=LEASE_S)


async def test_servers_leave_each_others_stock_and_remove_that_of_the_dead(
    store: PostgresStore, tmp_path: Path
) -> None:
    site = Node()
    async with AsyncExitStack() as first_life, server(store, tmp_path, "a", SiteBackend(site)) as first:
        first.pool.set_target(SandboxSpec(), 2)
        await until(lambda: len(first.pool.stock) == 2)
        # What a server that was killed had in stock, and a box that was never recorded.
        site.boxes["pool-edead-0123"] = Box()
        site.boxes["sb-unknown"] = Box()
        second = await first_life.enter_async_context(server(store, tmp_path, "b", SiteBackend(site)))
        await until(lambda: set(site.boxes) == first.pool.stock)
        second.pool.set_target(SandboxSpec(), 3)
        await until(lambda: len(second.pool.stock) == 3)
        for each in (first, second):
            (counted,) = await each.core.census(sweep=True)
            assert counted.orphans == {}
            assert counted.stock == 5
        assert set(site.boxes) == first.pool.stock | second.pool.stock
        made = await second.core.create(SandboxWish(SandboxSpec()))
        assert made.box_id.startswith("pool-eb-")
        left = dict(site.boxes)
        await second.replica.members.leave("b:1")  # killed: nothing of it is put away
        await until(lambda: made.id in first.held)
        await until(lambda: set(site.boxes) == first.pool.stock | {made.box_id})
        assert set(left) > set(site.boxes)


async def test_snapshots_at_a_site_are_every_servers_and_those_of_the_dead_are_given_up(
    store: PostgresStore, tmp_path: Path
) -> None:
    """What only its server knew of goes with it, and nothing that a server which lives makes or knows."""
    site = Node()
    async with server(store, tmp_path, "a", SnapshotSiteBackend(site)) as first:
        tree = CheckpointTree(first.core)
        box = (await first.core.create(SandboxWish(SandboxSpec()))).id
        kept = await tree.snapshot(box, TreeWish())
        own = await tree.snapshot(box, TreeWish(ephemeral=True))
        assert (kept.folder, kept.id.endswith("-ea")) == (SITE, True)
        made = [SnapshotState.MAKING, SnapshotState.READY]
        dead = [
            await store.add_snapshot(
                replace(
                    kept,
                    id=f"sn-0{at}-edead",
                    owner="edead",
                    state=state,
                    ephemeral=at == 1,
                    sandbox_id="gone",
                )
            )
            for at, state in enumerate([*made, SnapshotState.READY])
        ]
        for each in dead:
            site.layers[each.id] = Layer("", {})
        async with server(store, tmp_path, "b", SnapshotSiteBackend(site)) as second:
            wish = SandboxWish(kept.spec, snapshot_id=kept.id, backend=kept.backend)
            assert (await second.core.create(wish)).state is RUNNING, "any server starts from it"
            await until(lambda: not {dead[0].id, dead[1].id} & set(site.layers))
            assert {kept.id, own.id, dead[2].id} <= set(site.layers)
            (counted,) = await second.core.census(sweep=True)
            assert (counted.missing_layers, counted.stray_layers) == ((), ())
        states = {each.id: (await store.get_snapshot(each.id)).state for each in (kept, own, *dead)}  # type: ignore[union-attr]
        assert [*states.values()] == [
            SnapshotState.READY,
            SnapshotState.READY,
            SnapshotState.COLLECTED,
            SnapshotState.COLLECTED,
            SnapshotState.READY,
        ]
    assert not site.misuse
