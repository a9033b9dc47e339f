"""What tests of several folders share."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest
from hypothesis import HealthCheck, settings
from integration.postgres_server import PostgresServer, databases, postgres_server

# How long an example takes says how busy the machine is, not whether the code is right.
settings.register_profile("ale", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ale")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what takes minutes and is another commit's turn in CI; without ALE_CI_TURN everything runs."""
    turn = os.environ.get("ALE_CI_TURN", "")
    for item in items if turn else ():
        marker = item.get_closest_marker("turn")
        if marker is not None and marker.args[0] != int(turn):
            why = f"takes minutes: CI runs it at commits of turn {marker.args[0]}, this one has {turn}; `make test` runs it"
            item.add_marker(pytest.mark.skip(reason=why))


@pytest.fixture(scope="session")
def shared_postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL server for this test process; nobody stops it."""
    with postgres_server() as server:
        yield server


@pytest.fixture(scope="session")
def new_database(shared_postgres: PostgresServer) -> Callable[[], str]:
    """Make an empty database and return its URL."""
    return databases(shared_postgres)


@pytest.fixture
def own_postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL server that the test may stop, kill and start again."""
    with postgres_server() as server:
        yield server
