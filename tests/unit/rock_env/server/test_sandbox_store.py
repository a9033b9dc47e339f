"""The SQLite store of sandbox records: a real file, and real processes that are killed. The rest is in the contract."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rock_env.errors import FailedPrecondition, InfraError, InvalidArgument, Unavailable
from rock_env.lifecycle import SandboxRecord, SandboxState, born
from rock_env.spec import NetworkPolicy, SandboxSpec
from rock_env.store.base import Query
from rock_env.store.sqlite.records import MIGRATIONS, SqliteStore, query_sql


def record(number: int, **fields: Any) -> SandboxRecord:
    spec = SandboxSpec(env=(("A", "b"),), network=NetworkPolicy(allow=("x",)))
    made = born(f"sb-{number:03}", spec, backend="process", at=number + 0.1, lease_s=5.0)
    return replace(made, **fields)


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
from rock_env.store.sqlite.records import SqliteStore

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


async def test_writes_that_share_a_commit_fail_alone_and_are_answered_in_order() -> None:
    async with await SqliteStore.open() as store:
        first = await store.add(record(0))
        stale = replace(first, revision=first.revision - 1)
        answered: list[int] = []

        async def add(number: int) -> None:
            answered.append((await store.add(record(number, idempotency_key=f"k{number % 50}"))).revision)

        adding = [asyncio.create_task(add(number)) for number in range(1, 100)]
        refused = asyncio.create_task(store.save(stale))
        hurried = asyncio.create_task(store.save(first))
        await asyncio.sleep(0)
        hurried.cancel()
        with pytest.raises(FailedPrecondition, match="changed by someone else"):
            await refused
        await asyncio.gather(*adding)
        fresh = answered[:50]
        assert fresh == sorted(set(fresh))
        assert set(answered[50:]) <= set(fresh), "one record for each key, also within a commit"
        assert len(await store.find(Query())) == 51
        assert await store.revision() == 52, "the write of a caller that went away was made"


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
    with pytest.raises(InvalidArgument, match="cannot open"):
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
        with pytest.raises(FailedPrecondition, match=r"store\.db, holds a record that cannot be read"):
            await store.get("sb-001")


async def test_a_closed_store_says_so() -> None:
    store = await SqliteStore.open()
    await store.close()
    await store.close()
    with pytest.raises(InfraError, match="is closed"):
        await store.revision()
