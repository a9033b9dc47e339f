"""A server that is wrongly declared dead amid a Snapshot, Fork or Create, while another takes over: in every order.

Each world is one order of calls: the owner makes `before`, the other server `between`, then both come to their end. On
PostgreSQL the owner loses its connection at that point, too, before or after what it wrote was committed. At last all
servers are killed, and a new one starts: what was acknowledged must be there, once, and nothing beside it.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from interleaved import BlindStore, CutStore, Server, World, outcome

from rock_env.errors import RockError
from rock_env.lifecycle import SandboxState
from rock_env.server.sandboxes.checkpoints import TreeWish
from rock_env.server.sandboxes.core import LIVE, SandboxWish
from rock_env.snapshots import SnapshotRecord, SnapshotState
from rock_env.spec import SandboxSpec
from rock_env.store.base import Query, SandboxStore, SnapshotQuery
from rock_env.store.postgres.members import Members
from rock_env.store.postgres.records import PostgresStore
from rock_env.store.sqlite.records import SqliteStore

ACTS = ("snapshot", "fork", "create")
OTHERS = ("take over", "reconcile")
OWNER, OTHER, LAST = "n:owner", "n:other", "n:last"


@dataclass(frozen=True)
class Order:
    act: str
    other: str
    before: int
    between: int
    cut: str = ""


class Stores:
    """The stores of the servers of one world after another, emptied before each."""

    def __init__(
        self, opened: dict[str, Any], empty: Callable[[], Any], members: Members | None = None
    ) -> None:
        self.opened, self.empty, self._members = opened, empty, members

    async def join(self, name: str) -> None:
        if self._members is not None:
            await self._members.join(
                name, node="n", folder="folder", address="", environments=f"e{name}", lease_s=600
            )

    async def leave(self, name: str) -> None:
        if self._members is not None:
            await self._members.leave(name)


async def asked(server: Server, act: str, box: str) -> Any:
    """Make the one call whose answer counts."""
    if act == "snapshot":
        return await server.tree.snapshot(box, TreeWish(key="k"))
    if act == "fork":
        return await server.tree.fork(box, 2, TreeWish(key="k"))
    return await server.core.create(SandboxWish(SandboxSpec(), key="k"))


async def play(order: Order, stores: Stores) -> tuple[list[str], tuple[bool, bool]]:
    """Return what went wrong in one world, and whether each of the two made as many calls as the order says."""
    await stores.empty()
    world = World()
    await stores.join(OWNER)
    owner = await world.start(OWNER, stores.opened[OWNER])
    box = (await owner.core.create(SandboxWish(SandboxSpec()))).id
    await stores.join(OTHER)
    other = await world.start(OTHER, stores.opened[OTHER])

    async def wake() -> None:
        """Declare the owner dead, and do what follows from that."""
        world.living.discard(OWNER)
        await world.turns.call(OTHER, lambda: stores.leave(OWNER))
        if order.other == "take over":
            for record in await other.core.ledger.store.find(Query(states=LIVE)):
                if record.owner not in world.living:
                    await other.core.reconciler.take_over(record)
        else:
            await other.core.layers.reconcile()

    turns = world.turns
    turns.ordered = True
    owning = asyncio.ensure_future(outcome(asked(owner, order.act, box)))
    waking = asyncio.ensure_future(outcome(wake()))
    await turns.give(OWNER, order.before)
    made_before = turns.calls.get(OWNER, 0) == order.before and not owning.done()
    if order.cut:
        stores.opened[OWNER].cut = order.cut
    await turns.give(OTHER, order.between)
    reached = (made_before, turns.calls.get(OTHER, 0) == order.between)
    while not (owning.done() and waking.done()):
        made = sum(turns.calls.values())
        await turns.give(OWNER)
        await turns.give(OTHER)
        if sum(turns.calls.values()) == made:
            await asyncio.sleep(0.01)  # a lost connection is tried again after a moment
    answer = owning.result()
    assert not isinstance(waking.result(), RockError), waking.result()
    await world.kill()

    await stores.leave(OTHER)
    await stores.join(LAST)
    last = await world.start(LAST, stores.opened[LAST])
    again = await outcome(asked(last, order.act, box))
    wrong = await verdict(world, stores.opened[LAST], answer, again, box)
    await world.kill()
    return wrong, reached


async def verdict(world: World, store: SandboxStore, answer: Any, again: Any, box: str) -> list[str]:
    wrong = list(world.node.misuse)
    if isinstance(again, RockError):
        return [*wrong, f"lost: asked again it fails: {again}"]
    if not isinstance(answer, RockError) and _ids(answer) != _ids(again):
        wrong.append(f"lost: {_ids(answer)} was acknowledged, asked again it is {_ids(again)}")
    live = {it.id: it for it in await store.find(Query(states=LIVE))}
    found = await store.find_snapshots(SnapshotQuery())
    kept = {it.id for it in found if it.state is not SnapshotState.COLLECTED}
    wanted = {box}
    if isinstance(again, SnapshotRecord):
        now = await store.get_snapshot(again.id)
        if now is None or now.state is not SnapshotState.READY or again.id not in world.node.layers:
            wrong.append(f"lost: {now}")
    else:
        wanted |= set(_ids(again))
    running = {key for key, it in live.items() if it.state is SandboxState.RUNNING}
    wrong += [f"lost: {each} is {live.get(each, 'deleted')}" for each in wanted - running]
    wrong += [f"doubled or leaked: sandbox {each}" for each in live.keys() - wanted]
    wrong += [f"leaked: box {each}" for each in world.node.boxes.keys() - live.keys()]
    wrong += [f"lost: box of {each}" for each in live.keys() - world.node.boxes.keys()]
    wrong += [f"leaked: layer {each}" for each in world.node.layers.keys() - kept]
    wrong += [f"left half made: {it}" for it in found if it.state is SnapshotState.MAKING]
    return wrong


def _ids(answer: Any) -> list[str]:
    return [it.id for it in answer] if isinstance(answer, list) else [answer.id]


async def explored(
    stores: Stores, act: str, other: str, *, cuts: tuple[str, ...] = ("",), stride: int = 1
) -> tuple[dict[Order, list[str]], int]:
    """Play every order, or every `stride`-th, the cuts in turns; return what went wrong and how many there were."""
    wrong: dict[Order, list[str]] = {}
    turn = itertools.count()
    for before in itertools.count():
        for between in itertools.count(before % stride, stride):
            order = Order(act, other, before, between, cuts[next(turn) % len(cuts)])
            found, (reached, other_reached) = await play(order, stores)
            if found:
                wrong[order] = found
            if not reached:
                return wrong, next(turn)
            if not other_reached:
                break
    raise AssertionError("an act never ends")


@pytest.fixture
async def sqlite(tmp_path: Path) -> AsyncIterator[Stores]:
    store = await SqliteStore.open(tmp_path / "store.db")

    async def empty() -> None:
        def act(database: Any) -> None:
            for table in ("labels", "sandboxes", "snapshots"):
                database.execute(f"DELETE FROM {table}")

        await store._write(act)

    yield Stores(dict.fromkeys((OWNER, OTHER, LAST), store), empty)
    await store.close()


@pytest.fixture
async def postgres(new_database: Callable[[], str]) -> AsyncIterator[Stores]:
    url = new_database()
    async with AsyncExitStack() as stack:
        owner = await stack.enter_async_context(await CutStore.open(url))
        other = await stack.enter_async_context(await PostgresStore.open(url))

        async def empty() -> None:
            async def act(connection: Any) -> None:
                await connection.execute(
                    "DELETE FROM rock_labels; DELETE FROM rock_sandboxes; DELETE FROM rock_snapshots;"
                    "DELETE FROM rock_replicas"
                )

            await other.transact(act)

        yield Stores({OWNER: owner, OTHER: other, LAST: other}, empty, Members(other))


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("act", ACTS)
async def test_what_is_acknowledged_is_there_once_in_whatever_order(
    sqlite: Stores, act: str, other: str
) -> None:
    wrong, count = await explored(sqlite, act, other)
    assert not wrong
    assert count >= 20


@pytest.mark.slow
@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("act", ACTS)
async def test_a_connection_that_is_lost_meanwhile_changes_nothing(
    postgres: Stores, act: str, other: str
) -> None:
    wrong, count = await explored(postgres, act, other, cuts=("before", "after", ""), stride=2)
    assert not wrong
    assert count >= 10


async def test_a_store_without_the_comparison_loses_an_acknowledged_snapshot(sqlite: Stores) -> None:
    """The explorer finds what was found: a reconciliation that read MAKING writes DELETED over READY."""
    blind = {name: BlindStore(store) for name, store in sqlite.opened.items()}
    wrong, _ = await explored(Stores(blind, sqlite.empty), "snapshot", "reconcile")
    assert any("lost" in line for lines in wrong.values() for line in lines)
