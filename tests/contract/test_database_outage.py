"""A database that is away for longer than leases last: afterwards everybody lives who lived before."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from integration.postgres_server import PostgresServer
from memory_backend import Node
from test_sites import SiteBackend, server
from waiting import until

from rock_env.errors import Unavailable
from rock_env.lifecycle import SandboxState
from rock_env.server.sandboxes.checkpoints import CheckpointTree, TreeWish
from rock_env.server.sandboxes.core import SandboxWish
from rock_env.snapshots import SnapshotState
from rock_env.spec import SandboxSpec
from rock_env.store.postgres.members import Members
from rock_env.store.postgres.records import PostgresStore

pytestmark = pytest.mark.slow

LEASE_S = 3.0
AWAY_S = 2 * LEASE_S


async def away(postgres: PostgresServer) -> None:
    """Kill the database, and start it when all leases are over."""
    await asyncio.to_thread(postgres.stop, fast=False)
    await asyncio.sleep(AWAY_S)
    await asyncio.to_thread(postgres.start)


async def test_nobody_is_declared_dead_for_the_time_of_an_outage(
    own_postgres: PostgresServer, tmp_path: Path
) -> None:
    url, node = own_postgres.url(), Node()
    async with (
        await PostgresStore.open(url) as one,
        await PostgresStore.open(url) as two,
        server(one, tmp_path, "a", SiteBackend(node), lease_s=LEASE_S) as owner,
        server(two, tmp_path, "b", SiteBackend(node), lease_s=LEASE_S) as other,
    ):
        box = (await owner.core.create(SandboxWish(SandboxSpec()))).id
        silent, its = "c:1", Members(two)
        await its.join(silent, node="c", folder="c", address="", lease_s=LEASE_S)
        ids = {owner.replica.id, other.replica.id}
        await away(own_postgres)
        members = other.replica.members
        while (await members.all())[other.replica.id].expires_in_s < 0:  # noqa: ASYNC110  only the database knows
            await asyncio.sleep(0.02)
        await members.bury()
        assert await its.renew(silent, lease_s=LEASE_S), "it has a lease from the database's return on, too"
        while silent in await members.all():  # noqa: ASYNC110  who really is silent is declared dead in the end
            await asyncio.sleep(0.02)
        assert {owner.replica.id, other.replica.id} == ids == (await members.all()).keys()
        assert box in owner.held


async def test_the_lease_of_a_sandbox_stands_still_and_ends_afterwards(
    own_postgres: PostgresServer, tmp_path: Path
) -> None:
    node = Node()
    async with (
        await PostgresStore.open(own_postgres.url()) as store,
        server(store, tmp_path, "a", SiteBackend(node), lease_s=LEASE_S) as owner,
    ):
        box = (await owner.core.create(SandboxWish(SandboxSpec(), lease_s=LEASE_S))).id
        await away(own_postgres)
        assert (await owner.core.renew(box, LEASE_S)).state is SandboxState.RUNNING
        await until(lambda: box not in owner.held)
        ended = await store.get(box)
        assert ended is not None
        assert (ended.state, ended.reason) == (SandboxState.DELETED, "its lease expired")
        assert not node.boxes


async def test_a_change_that_was_begun_is_finished_and_its_caller_is_told_meanwhile(
    own_postgres: PostgresServer, tmp_path: Path
) -> None:
    """Every caller is told after a while; a retry under the key finds the one result."""
    node = Node()
    async with (
        await PostgresStore.open(own_postgres.url(), retry_s=0.2) as store,
        server(store, tmp_path, "a", SiteBackend(node)) as owner,
    ):
        tree = CheckpointTree(owner.core)
        box = (await owner.core.create(SandboxWish(SandboxSpec()))).id
        frozen, snapshot = asyncio.Event(), owner.pool.snapshot

        async def freeze_and_lose(sandbox_id: str, *, snapshot_id: str) -> int:
            size = await snapshot(sandbox_id, snapshot_id=snapshot_id)
            await asyncio.to_thread(own_postgres.stop, fast=False)
            frozen.set()
            return size

        owner.pool.snapshot = freeze_and_lose  # type: ignore[method-assign]
        asked = asyncio.create_task(tree.snapshot(box, TreeWish(key="k")))
        await frozen.wait()
        refused = (await asyncio.gather(asked, return_exceptions=True))[0]
        assert isinstance(refused, Unavailable)
        refused = (await asyncio.gather(owner.core.renew(box, 60.0), return_exceptions=True))[0]
        assert isinstance(refused, Unavailable)
        await asyncio.to_thread(own_postgres.start)
        while True:
            try:
                made = await tree.snapshot(box, TreeWish(key="k"))
                break
            except Unavailable:
                await asyncio.sleep(0.02)
        assert made.state is SnapshotState.READY
        assert node.layers.keys() == {made.id}
        owner.pool.snapshot = snapshot  # type: ignore[method-assign]
