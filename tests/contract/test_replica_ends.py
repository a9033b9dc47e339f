"""A replica that ends while others come and go, on a real PostgreSQL."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from waiting import until

from rock_env.backends.process.backend import ProcessBackend
from rock_env.server.replicas.member import Replica
from rock_env.server.replicas.seats import Seat
from rock_env.server.sandboxes.core import SandboxCore
from rock_env.store.postgres.members import MEMBERS
from rock_env.store.postgres.records import PostgresStore


@pytest.mark.parametrize("turns", range(6))
async def test_a_replica_ends_though_it_hears_of_another_at_that_moment(
    new_database: Callable[[], str], tmp_path: Path, turns: int
) -> None:
    """Whatever turn of the event loop it is told in: of the two, the end must not get lost."""
    backend = ProcessBackend(root=tmp_path, isolation="none", shared=True)
    async with (
        await PostgresStore.open(new_database()) as store,
        Replica.joined(
            store,
            Seat(own_id="n:one", node="n", folder="f", address=f"unix://{tmp_path}/one", witnesses=tmp_path),
        ) as replica,
        SandboxCore(backend, store, ownership=replica) as core,
    ):
        await replica.members.join("n:two", node="m", folder="g", address="unix:///nowhere", lease_s=600)
        async with asyncio.timeout(60), replica.serve(core):
            events = store.listener._told[MEMBERS]
            await until(lambda: len(events) == 2 and all(event._waiters for event in events))
            for event in tuple(events):
                event.set()
            for _ in range(turns):
                await asyncio.sleep(0)
    await backend.close()
