"""What a store on real PostgreSQL promises beyond the contract: it is shared, remote, and has a password."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import replace
from typing import Any

import asyncpg
import pytest
from integration.postgres_server import PostgresServer
from store_records import emptied, record

from rock_env.errors import FailedPrecondition, InvalidArgument, Unavailable
from rock_env.lifecycle import SandboxRecord, SandboxState
from rock_env.store.base import Query, SandboxStore
from rock_env.store.open import open_store
from rock_env.store.postgres.records import PostgresStore, masked
from rock_env.store.postgres.schema import MIGRATIONS, find_sql

CUT = """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE application_name = 'rock-server' AND datname = current_database() AND query != ''"""
"""End the connections of stores, but for those that are just being made: asyncpg does not close these."""


@pytest.fixture(scope="session")
def database(new_database: Callable[[], str]) -> str:
    return new_database()


@pytest.fixture
async def url(database: str) -> str:
    await emptied(database)
    return database


async def raw(url: str, statement: str, *values: object) -> Any:
    connection = await asyncpg.connect(url)
    try:
        return await connection.fetch(statement, *values)
    finally:
        await connection.close()


@asynccontextmanager
async def stores(url: str, count: int) -> AsyncIterator[list[PostgresStore]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(await PostgresStore.open(url)) for _ in range(count)]


async def test_every_filter_goes_by_an_index(url: str) -> None:
    expected = [
        (Query(limit=10), "rock_sandboxes_pkey"),
        (Query(states=frozenset({SandboxState.FAILED})), "rock_sandboxes_state"),
        (Query(environment="swe", limit=10), "rock_sandboxes_environment"),
        (Query(tenant="a", limit=10), "rock_sandboxes_"),
        (Query(labels={"team": "a"}), "rock_labels_pkey"),
        (Query(after_revision=2990), "rock_sandboxes_revision"),
    ]
    fill = """INSERT INTO rock_sandboxes SELECT 'sb-' || n, 't' || n % 500, sha256(n::text::bytea),
        CASE n % 1000 WHEN 0 THEN 'FAILED' ELSE 'RUNNING' END, sha256((n % 500)::text::bytea), n, '', '', '', ''
        FROM generate_series(1, 3000) n"""
    async with stores(url, 1):
        connection = await asyncpg.connect(url)
        await connection.execute(fill)
        await connection.execute("INSERT INTO rock_labels SELECT sha256(id::bytea), id FROM rock_sandboxes")
        await connection.execute("ANALYZE rock_sandboxes, rock_labels")
        for query, index in expected:
            statement, values = find_sql(query)
            plan = [row[0] for row in await connection.fetch(f"EXPLAIN {statement}", *values)]
            assert any(index in step for step in plan), plan
            assert not any("Seq Scan" in step for step in plan), plan
        await connection.close()


async def test_servers_that_start_together_make_the_tables_once(new_database: Callable[[], str]) -> None:
    url = new_database()
    async with AsyncExitStack() as stack:
        opened = await asyncio.gather(*(PostgresStore.open(url) for _ in range(4)))
        for store in opened:
            await stack.enter_async_context(store)
        first = await opened[0].add(record(1))
        assert [await store.get(first.id) for store in opened] == [first] * 4
    assert (await raw(url, "SELECT version FROM rock_version"))[0][0] == len(MIGRATIONS)
    await raw(url, "UPDATE rock_version SET version = version + 1")
    with pytest.raises(InvalidArgument, match=rf"has version {len(MIGRATIONS) + 1}, this server knows up to"):
        await PostgresStore.open(url)


async def test_no_password_is_ever_told(
    shared_postgres: PostgresServer, caplog: pytest.LogCaptureFixture
) -> None:
    good = shared_postgres.url()
    wrong = [
        good.replace("sesame", "opensaysme"),
        good.replace("sesame", "opensaysme") + "?sslmode=nonsense",
        good.replace("sesame", "opensaysme").replace("/postgres", "/absent"),
        "postgresql://rock:opensaysme@[::1/x",
        "postgresql://rock:opensaysme@127.0.0.1:notaport/x",
        "postgresql://127.0.0.1:1/x?password=opensaysme",
    ]
    for url in wrong:
        with pytest.raises((InvalidArgument, Unavailable)) as caught:
            await PostgresStore.open(url, retry_s=0.1)
        chain: BaseException | None = caught.value
        while chain is not None:
            assert "opensaysme" not in str(chain)
            chain = None if chain.__suppress_context__ and chain.__cause__ is None else chain.__cause__
    assert "opensaysme" not in caplog.text
    assert masked("postgresql://me:pw@host:5/db?password=pw") == "postgresql://me@host:5/db"
    with pytest.raises(InvalidArgument, match="unknown kind of store 'mysql'"):
        await open_store("mysql://x")
    store = await open_store(good)
    await store.close()
    assert isinstance(store, PostgresStore)


async def test_history_is_linear_and_revisions_come_in_the_order_of_commits(url: str) -> None:
    """Many tasks on two connections add, change and lose races; two watchers see it all in one order."""
    chance = random.Random(7)
    wins: dict[str, list[int]] = {f"sb-{number:03}": [] for number in range(6)}
    async with stores(url, 3) as opened:
        seen: list[list[SandboxRecord]] = [[], []]

        async def watch(store: PostgresStore, into: list[SandboxRecord]) -> None:
            async with aclosing(store.changes(0)) as changes:
                async for it in changes:
                    into.append(it)
                    if it.id == "sb-999":
                        return

        watching = [
            asyncio.create_task(watch(store, into)) for store, into in zip(opened, seen, strict=False)
        ]

        async def work(store: SandboxStore) -> None:
            for _ in range(60):
                number = chance.randrange(6)
                it = await store.get(f"sb-{number:03}")
                if it is None:
                    added = await store.add(record(number, idempotency_key=f"k{number}"))
                    assert added.id == f"sb-{number:03}"
                    continue
                # The lease counts the changes: a lost update would show in the end.
                lease = (it.lease_expires_at or 0.0) + 1
                try:
                    saved = await store.save(replace(it, lease_expires_at=lease))
                except FailedPrecondition:
                    continue
                assert saved.revision > it.revision
                wins[it.id].append(saved.revision)

        await asyncio.gather(*(work(store) for store in opened[:2] for _ in range(8)))
        await opened[0].add(record(999))
        await asyncio.gather(*watching)
        latest = await opened[2].revision()
        found = await opened[2].find(Query())
        for it in found[:-1]:
            first = record(int(it.id[3:])).lease_expires_at or 0.0
            assert it.lease_expires_at == first + len(wins[it.id]), "each won change is in it, once"
            assert it.revision == max(wins[it.id])
        revisions = [revision for won in wins.values() for revision in won]
        assert len(set(revisions)) == len(revisions)
        assert latest == len(revisions) + len(found), "each change has its own revision, and no loser has one"
    for into in seen:
        assert [it.revision for it in into] == sorted({it.revision for it in into})
        for sandbox_id in wins:
            leases = [it.lease_expires_at for it in into if it.id == sandbox_id]
            assert leases == sorted(leases), "a watcher sees a record go forward only"
        assert {it.id: it for it in into} == {it.id: it for it in found}


async def test_changes_are_not_lost_while_the_connection_is(url: str) -> None:
    async with stores(url, 2) as (mine, other), aclosing(mine.changes(0)) as changes:
        seen: list[int] = []
        for number in range(1, 9):
            stored = await other.add(record(number))
            if number % 3 == 0:
                await raw(url, CUT)
            while not seen or seen[-1] < stored.revision:
                seen.append((await asyncio.wait_for(anext(changes), 30)).revision)
        assert seen == [*range(1, 9)]


async def test_a_database_that_restarts_is_waited_for(own_postgres: PostgresServer) -> None:
    async with await PostgresStore.open(own_postgres.url(), retry_s=20) as store:
        await store.add(record(1))
        for fast in (True, False):  # an operator's restart, and a crash
            await asyncio.to_thread(own_postgres.stop, fast=fast)
            writes = [asyncio.create_task(store.add(record(number))) for number in range(10 + fast, 30, 2)]
            read = asyncio.create_task(store.get("sb-001"))
            await asyncio.to_thread(own_postgres.start)
            assert [(await write).id for write in writes]
            assert (await read) is not None
        assert len(await store.find(Query())) == 21
        assert await store.revision() == 21
        await asyncio.to_thread(own_postgres.stop)
        store._retry_s = 0.1
        with pytest.raises(Unavailable, match="does not answer") as caught:
            await store.get("sb-001")
        assert caught.value.retry_after_s
        with pytest.raises(Unavailable):
            await store.add(record(99))


async def test_a_write_whose_answer_was_lost_is_not_made_twice(own_postgres: PostgresServer) -> None:
    """Connections are cut again and again while many write; every answer is true and nothing is doubled."""
    url = own_postgres.url()
    async with await PostgresStore.open(url, retry_s=30) as store:
        writes = itertools.count(1)
        enough = asyncio.Event()

        async def cut() -> None:
            connection = await asyncpg.connect(url, server_settings={"application_name": "cutter"})
            try:
                while True:
                    await enough.wait()
                    enough.clear()
                    await connection.execute(CUT)
            finally:
                connection.terminate()

        async def work(number: int) -> SandboxRecord:
            it = await store.add(record(number, idempotency_key=f"k{number}"))
            for lease in range(60):
                it = await store.save(replace(it, lease_expires_at=float(lease)))
                if next(writes) % 150 == 0:
                    enough.set()
            return it

        cutting = asyncio.create_task(cut())
        last = await asyncio.gather(*map(work, range(20)))
        cutting.cancel()
        await asyncio.wait((cutting,))
        assert sorted(await store.find(Query()), key=lambda it: it.id) == sorted(last, key=lambda it: it.id)
        assert await store.revision() == 20 * 61
