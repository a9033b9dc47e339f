"""PostgreSQL killed amid each kind of call, twice: `python -m benchmarks.chaos --amid-calls` is the long one."""

from __future__ import annotations

import pytest
from database_crashes import ACTS, Crashes
from integration.postgres_server import PostgresServer, databases
from integration.replica_fleet import running_fleet


@pytest.mark.timeout(300)
@pytest.mark.parametrize("act", ACTS)
async def test_a_crash_of_the_database_loses_doubles_and_leaks_nothing(
    own_postgres: PostgresServer, act: str
) -> None:
    async with running_fleet(databases(own_postgres)()) as fleet:
        found = await Crashes(fleet, own_postgres).run(2, (act,))
    assert found.crashes[act] == 2
    assert (found.lost, found.doubled, found.leaked, found.wrong) == ([], [], [], [])
