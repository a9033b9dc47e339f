"""What every store of sandbox records promises: SQLite and real PostgreSQL."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Coroutine
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from store_records import emptied, record

from rock_env.errors import FailedPrecondition, InfraError, NotFound
from rock_env.lifecycle import TRANSITIONS, SandboxRecord, SandboxState, transition
from rock_env.snapshots import SnapshotRecord, SnapshotState, Uses
from rock_env.spec import SandboxSpec
from rock_env.store.base import Overtaken, Query, SandboxStore, SnapshotQuery
from rock_env.store.postgres.records import PostgresStore
from rock_env.store.sqlite.records import SqliteStore

T = TypeVar("T")
KEPT = 3
NAMES = st.sampled_from(["", "a", "b"])
LABELS = st.dictionaries(st.sampled_from(["x", "y"]), st.sampled_from(["1", "2"]))
Open = Callable[[], Coroutine[Any, Any, SandboxStore]]


@pytest.fixture(scope="session")
def database(new_database: Callable[[], str]) -> str:
    return new_database()


@pytest.fixture(params=["sqlite", "postgres"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def opened(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    """Open the same store again and again."""
    if kind == "sqlite":
        return lambda: SqliteStore.open(tmp_path / "store.db", kept_deleted=KEPT)
    url = request.getfixturevalue("database")
    await emptied(url)
    return lambda: PostgresStore.open(url, kept_deleted=KEPT)


class Stored(RuleBasedStateMachine):
    """The store beside a dict. Every record the store has must equal the model's, also after it was opened anew."""

    def __init__(self, opened: Open, empty: Callable[[], Coroutine[Any, Any, None]]) -> None:
        super().__init__()
        self.opened = opened
        self.loop = asyncio.new_event_loop()
        self.do(empty())

    @initialize()
    def begin(self) -> None:
        self.model: dict[str, SandboxRecord] = {}
        self.revision = 0
        self.made = 0
        self.store = self.do(self.opened())

    def teardown(self) -> None:
        self.do(self.store.close())
        self.loop.close()

    def do(self, act: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(act)

    def took(self, stored: SandboxRecord) -> None:
        self.revision += 1
        assert stored.revision == self.revision
        self.model[stored.id] = stored

    def holder(self, tenant: str, key: str) -> SandboxRecord | None:
        held = [it for it in self.model.values() if key and (it.tenant, it.idempotency_key) == (tenant, key)]
        assert len(held) <= 1
        return held[0] if held else None

    @rule(tenant=NAMES, key=NAMES, environment=NAMES, labels=LABELS)
    def add(self, tenant: str, key: str, environment: str, labels: dict[str, str]) -> None:
        self.made += 1
        wish = record(self.made, tenant=tenant, idempotency_key=key, environment=environment, labels=labels)
        stored = self.do(self.store.add(wish))
        before = self.holder(tenant, key)
        if before is None:
            assert replace(stored, revision=0) == wish
            self.took(stored)
        else:
            assert stored == before

    @precondition(lambda self: self.model)
    @rule(data=st.data(), free=st.booleans())
    def move(self, data: st.DataObject, free: bool) -> None:
        before = self.model[data.draw(st.sampled_from(sorted(self.model)))]
        legal = sorted(TRANSITIONS[before.state])
        if not legal:
            return
        after = transition(before, data.draw(st.sampled_from(legal)), at=9.5, reason="because")
        if free:
            after = replace(after, idempotency_key="")
        self.took(self.do(self.store.save(after)))
        with pytest.raises(FailedPrecondition, match="changed by someone else"):
            self.do(self.store.save(replace(before, lease_expires_at=1.0)))
        deleted = sorted(
            (it for it in self.model.values() if it.state is SandboxState.DELETED),
            key=lambda it: it.revision,
        )
        for old in deleted[:-KEPT]:
            del self.model[old.id]

    @rule()
    def open_anew(self) -> None:
        self.do(self.store.close())
        self.store = self.do(self.opened())

    @rule(
        states=st.just(frozenset(SandboxState)) | st.frozensets(st.sampled_from(SandboxState), min_size=1),
        labels=LABELS,
        environment=NAMES,
        tenant=st.none() | NAMES,
        limit=st.none() | st.integers(1, 3),
        after=st.integers(0, 5),
        by_revision=st.booleans(),
    )
    def find(self, *, after: int, by_revision: bool, **fields: Any) -> None:
        query = (
            Query(**fields, after_revision=after)
            if by_revision
            else Query(**fields, after_id=f"sb-{after:03}")
        )
        expected = [
            it
            for it in self.model.values()
            if it.state in query.states
            and query.tenant in (None, it.tenant)
            and query.labels.items() <= it.labels.items()
            and query.environment in ("", it.environment)
            and it.id > query.after_id
            and it.revision > query.after_revision
        ]
        expected.sort(key=lambda it: (it.revision if query.after_revision else 0, it.id))
        assert self.do(self.store.find(query)) == expected[: query.limit]

    @invariant()
    def nothing_is_lost_or_invented(self) -> None:
        if hasattr(self, "store"):
            assert {it.id: it for it in self.do(self.store.find(Query()))} == self.model
            assert self.do(self.store.revision()) == self.revision


def test_a_store_is_a_dict_with_revisions(
    kind: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folders = (tmp_path_factory.mktemp("store") for _ in itertools.count())
    examples = 30 if kind == "sqlite" else 8

    def machine() -> Stored:
        if kind == "postgres":
            url = request.getfixturevalue("database")
            return Stored(lambda: PostgresStore.open(url, kept_deleted=KEPT), lambda: emptied(url))
        path = next(folders) / "store.db"
        return Stored(lambda: SqliteStore.open(path, kept_deleted=KEPT), lambda: asyncio.sleep(0))

    run_state_machine_as_test(machine, settings=settings(max_examples=examples, stateful_step_count=20))


async def test_only_the_newest_deleted_ones_are_kept_and_a_forgotten_key_is_free(opened: Open) -> None:
    store = await opened()
    async with aclosing(_Closing(store)):
        lives = await store.add(record(0))
        for number in range(1, 6):
            it = await store.add(record(number, idempotency_key=f"k{number}", labels={"x": "1"}))
            for state in (SandboxState.DELETING, SandboxState.DELETED):
                it = await store.save(transition(it, state, at=1.0))
        assert [it.id for it in await store.find(Query())] == [lives.id, "sb-003", "sb-004", "sb-005"]
        assert (await store.add(record(6, idempotency_key="k3"))).id == "sb-003"
        assert (await store.add(record(7, idempotency_key="k2"))).id == "sb-007"
        assert len(await store.find(Query(labels={"x": "1"}))) == KEPT


async def test_what_a_caller_names_is_kept_however_odd_or_long(opened: Open) -> None:
    odd = {"": "", "nul\0": "\0", "long": "v" * 5000, "l" * 5000: "ä€𝄞", "a": "\0b", "a\0": "b"}
    wish = record(1, idempotency_key="k" * 9000, environment="e\0" * 3000, labels=odd)
    store = await opened()
    async with aclosing(_Closing(store)):
        stored = await store.add(wish)
        assert await store.get(wish.id) == stored == replace(wish, revision=1)
        assert await store.add(replace(wish, id="sb-2")) == stored
        for name, value in odd.items():
            assert await store.find(Query(labels={name: value}, environment=wish.environment)) == [stored]
        assert not await store.find(Query(labels={"a\0b": ""}))
        assert await store.get("sb-1\0") is None


async def test_one_key_of_many_callers_at_once_makes_one_record(opened: Open) -> None:
    store = await opened()
    async with aclosing(_Closing(store)):
        wishes = [record(number, idempotency_key="k") for number in range(40)]
        answers = await asyncio.gather(*map(store.add, wishes))
        assert len({answer.id for answer in answers}) == 1
        assert await store.revision() == 1


async def test_a_caller_that_hangs_up_leaves_a_whole_record_or_none(opened: Open) -> None:
    store = await opened()
    async with aclosing(_Closing(store)):
        calls = [asyncio.create_task(store.add(record(number))) for number in range(20)]
        for call in calls[::2]:
            await asyncio.sleep(0)
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        found = await store.find(Query())
        assert {it.id for it in found} >= {record(number).id for number in range(1, 20, 2)}
        assert [it.revision for it in sorted(found, key=lambda it: it.revision)] == [
            *range(1, len(found) + 1)
        ]


async def test_a_closed_store_says_so(opened: Open) -> None:
    store = await opened()
    await store.close()
    await store.close()
    for act in (store.revision(), store.get("sb-1"), store.add(record(1))):
        with pytest.raises(InfraError, match="is closed"):
            await act


class _Closing:
    def __init__(self, store: SandboxStore) -> None:
        self.aclose = store.close


def snapshot(number: int, **fields: Any) -> SnapshotRecord:
    made = SnapshotRecord(
        id=f"sn-{number:03}", backend="process", spec=SandboxSpec(), sandbox_id="sb-001", created_at=1.0
    )
    return replace(made, state=SnapshotState.READY, **fields)


async def test_a_snapshot_is_kept_as_long_as_something_builds_upon_it(opened: Open) -> None:
    store = await opened()
    async with aclosing(_Closing(store)):
        base = await store.add_snapshot(snapshot(1, idempotency_key="k", labels={"x": "1"}))
        assert await store.add_snapshot(snapshot(2, idempotency_key="k")) == base
        assert await store.find_snapshots(SnapshotQuery(idempotency_key="k")) == [base]
        assert not await store.find_snapshots(SnapshotQuery(idempotency_key="other"))
        child = await store.add_snapshot(snapshot(3, parent=base.id, sandbox_id="sb-002"))
        assert (await store.count_snapshots(base.tenant), await store.count_snapshots("another")) == (2, 0)
        box = await store.add(record(1, snapshot_id=child.id))
        assert await store.uses([base.id, child.id, "sn-none"]) == {
            base.id: Uses(1, 0),
            child.id: Uses(0, 1),
            "sn-none": Uses(0, 0),
        }
        for it in (base, child):
            gone = await store.save_snapshot(replace(it, state=SnapshotState.DELETED))
            assert gone == replace(it, state=SnapshotState.DELETED, revision=it.revision + 1)
            assert await store.save_snapshot(replace(gone, revision=it.revision)) == gone, (
                "asked again: as it is"
            )
            assert not await store.collect(it.id)
        for back in (base, replace(base, revision=1)):  # also of one who has read it again
            with pytest.raises(Overtaken, match="is DELETED at revision 1 by now and cannot become READY"):
                await store.save_snapshot(back)
        with pytest.raises(NotFound, match="was deleted"):
            await store.add(record(2, snapshot_id=child.id))
        for state in (SandboxState.DELETING, SandboxState.DELETED):
            box = await store.save(transition(box, state, at=1.0))
        assert [it.id for it in await store.collect(child.id)] == [child.id, base.id]
        assert not await store.collect(child.id)
        assert await store.count_snapshots(base.tenant) == 0
        for late in (
            store.add(record(2, snapshot_id=child.id)),
            store.add_snapshot(snapshot(4, parent=base.id)),
            store.add(record(3, snapshot_id="sn-none")),
        ):
            with pytest.raises(NotFound, match="was deleted"):
                await late
        assert await store.get("sb-002") is None
        assert await store.get_snapshot("sn-none") is None
        found = await store.find_snapshots(SnapshotQuery(states=frozenset({SnapshotState.COLLECTED})))
        assert [it.id for it in found] == [base.id, child.id]
        assert [it.id for it in await store.find_snapshots(SnapshotQuery(labels={"x": "1"}, limit=1))] == [
            base.id
        ]
        assert [
            it.id for it in await store.find_snapshots(SnapshotQuery(sandbox_id="sb-002", tenant=""))
        ] == [child.id]
        assert not await store.find_snapshots(SnapshotQuery(tenant="other"))


async def test_nothing_builds_upon_a_snapshot_that_is_being_collected(opened: Open) -> None:
    store = await opened()
    async with aclosing(_Closing(store)):
        for number in range(20):
            base = await store.add_snapshot(snapshot(number))
            box = await store.add(record(number, snapshot_id=base.id))
            await store.save_snapshot(replace(base, state=SnapshotState.DELETED))
            left, collected = await asyncio.gather(
                store.save(replace(box, snapshot_id="")), store.collect(base.id)
            )
            back = (
                await asyncio.gather(store.save(replace(left, snapshot_id=base.id)), return_exceptions=True)
            )[0]
            assert isinstance(back, NotFound) == bool(collected)
