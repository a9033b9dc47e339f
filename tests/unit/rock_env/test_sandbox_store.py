"""The store of sandbox records: a real file, real processes that are killed, and a model to compare with."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from rock_env.errors import FailedPrecondition, InfraError, InvalidArgument, Unavailable
from rock_env.lifecycle import TRANSITIONS, SandboxRecord, SandboxState, born, transition
from rock_env.spec import NetworkPolicy, SandboxSpec
from rock_env.store.base import Query
from rock_env.store.sqlite import MIGRATIONS, SqliteStore, query_sql

T = TypeVar("T")
KEPT = 3
NAMES = st.sampled_from(["", "a", "b"])
LABELS = st.dictionaries(st.sampled_from(["x", "y"]), st.sampled_from(["1", "2"]))


def record(number: int, **fields: Any) -> SandboxRecord:
    spec = SandboxSpec(env=(("A", "b"),), network=NetworkPolicy(allow=("x",)), ports=(1, 2))
    made = born(f"sb-{number:03}", spec, backend="process", at=number + 0.1, lease_s=5.0)
    return replace(made, **fields)


class Stored(RuleBasedStateMachine):
    """The store beside a dict. Every record the store has must equal the model's, also after it was opened anew."""

    @initialize()
    def begin(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.folder = tempfile.TemporaryDirectory()
        self.model: dict[str, SandboxRecord] = {}
        self.revision = 0
        self.made = 0
        self.store = self.do(self.opened())

    def teardown(self) -> None:
        self.do(self.store.close())
        self.loop.close()
        self.folder.cleanup()

    def do(self, act: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(act)

    def opened(self) -> Coroutine[Any, Any, SqliteStore]:
        return SqliteStore.open(Path(self.folder.name, "store.db"), kept_deleted=KEPT)

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


TestStored = Stored.TestCase
TestStored.settings = settings(max_examples=30, stateful_step_count=25, deadline=None)


async def test_only_the_newest_deleted_ones_are_kept_and_a_forgotten_key_is_free() -> None:
    async with await SqliteStore.open(kept_deleted=KEPT) as store:
        lives = await store.add(record(0))
        for number in range(1, 6):
            it = await store.add(record(number, idempotency_key=f"k{number}", labels={"x": "1"}))
            for state in (SandboxState.DELETING, SandboxState.DELETED):
                it = await store.save(transition(it, state, at=1.0))
        assert [it.id for it in await store.find(Query())] == [lives.id, "sb-003", "sb-004", "sb-005"]
        assert (await store.add(record(6, idempotency_key="k3"))).id == "sb-003"
        assert (await store.add(record(7, idempotency_key="k2"))).id == "sb-007"
        assert await store._run(store._number, "SELECT count(*) FROM labels") == KEPT


@pytest.mark.parametrize(
    ("query", "index"),
    [
        (Query(limit=10), "PRIMARY KEY"),
        (Query(states=frozenset({SandboxState.FAILED}), limit=10), "sandboxes_state"),
        (Query(environment="swe", limit=10), "sandboxes_environment"),
        (Query(tenant="a", states=frozenset(SandboxState) - {SandboxState.DELETED}), "sandboxes_tenant"),
        (Query(labels={"team": "a"}, states=frozenset({SandboxState.RUNNING})), "labels USING PRIMARY KEY"),
        (Query(after_revision=5), "sandboxes_revision"),
    ],
)
async def test_every_filter_goes_by_an_index(query: Query, index: str, tmp_path: Path) -> None:
    await (await SqliteStore.open(tmp_path / "store.db")).close()
    database = sqlite3.connect(tmp_path / "store.db")
    statement, values = query_sql(query)
    plan = [row[3] for row in database.execute(f"EXPLAIN QUERY PLAN {statement}", values)]
    database.close()
    assert any(index in step for step in plan), plan
    assert not any(step.startswith("SCAN") for step in plan), plan


ADD_UNTIL_KILLED = """
import asyncio, sys
from pathlib import Path
from rock_env.lifecycle import SandboxState, born, transition
from rock_env.spec import SandboxSpec
from rock_env.store.sqlite import SqliteStore

async def main():
    store = await SqliteStore.open(Path(sys.argv[1]))
    for number in range(1_000_000):
        made = await store.add(born(f"sb-{number:06}", SandboxSpec(), backend="process", at=1.0))
        moved = await store.save(transition(made, SandboxState.RUNNING, at=2.0, reason="started"))
        print(moved.id, moved.revision, flush=True)

asyncio.run(main())
"""


def added_until_killed(path: Path) -> list[list[str]]:
    """Return what a process acknowledged, as (id, revision), before and while it was killed."""
    acknowledged: list[list[str]] = []
    with subprocess.Popen(
        [sys.executable, "-c", ADD_UNTIL_KILLED, str(path)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.endswith("\n"):  # the last one may have been cut off
                acknowledged.append(line.split())
            if len(acknowledged) == 40:
                process.send_signal(signal.SIGKILL)
    return acknowledged


async def test_a_killed_server_loses_nothing_it_acknowledged(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    acknowledged = await asyncio.to_thread(added_until_killed, path)
    async with await SqliteStore.open(path) as store:
        found = {it.id: it for it in await store.find(Query())}
        for sandbox_id, revision in acknowledged:
            assert (found[sandbox_id].state, found[sandbox_id].revision) == (
                SandboxState.RUNNING,
                int(revision),
            )
        assert len(found) - len(acknowledged) in (0, 1)
        assert await store.revision() >= 2 * len(acknowledged)


async def test_only_one_server_at_a_time_has_the_file(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with await SqliteStore.open(path) as store:
        with pytest.raises(Unavailable, match="used by another server"):
            await SqliteStore.open(path)
        assert await store.find(Query()) == []
    await (await SqliteStore.open(path)).close()
    assert path.stat().st_mode & 0o777 == 0o600


async def test_a_file_gets_the_newest_version_and_a_newer_one_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with await SqliteStore.open(path) as store:
        await store.add(record(1))
    database = sqlite3.connect(path)
    assert database.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS),)
    database.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    database.close()
    with pytest.raises(InvalidArgument, match=rf"has version {len(MIGRATIONS) + 1}, this server knows up to"):
        await SqliteStore.open(path)


async def test_what_is_not_a_store_is_left_alone(tmp_path: Path) -> None:
    text, other = tmp_path / "notes.txt", tmp_path / "other.db"
    text.write_text("not a database" * 100)
    database = sqlite3.connect(other)
    database.execute("CREATE TABLE theirs (x)")
    database.close()
    before = other.read_bytes()
    with pytest.raises(InvalidArgument, match="not an SQLite file"):
        await SqliteStore.open(text)
    with pytest.raises(InvalidArgument, match="another program"):
        await SqliteStore.open(other)
    assert (text.read_text(), other.read_bytes()) == ("not a database" * 100, before)
    with pytest.raises(InfraError, match="cannot open"):
        await SqliteStore.open(tmp_path / "nowhere" / "store.db")


async def test_a_damaged_record_is_said_to_be_one(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with await SqliteStore.open(path) as store:
        await store.add(record(1))
    database = sqlite3.connect(path)
    database.execute("UPDATE sandboxes SET record = '{}'")
    database.commit()
    database.close()
    async with await SqliteStore.open(path) as store:
        with pytest.raises(InfraError, match=r"store\.db holds a record that cannot be read"):
            await store.get("sb-001")


async def test_a_closed_store_says_so() -> None:
    store = await SqliteStore.open()
    await store.close()
    await store.close()
    with pytest.raises(InfraError, match="is closed"):
        await store.revision()
