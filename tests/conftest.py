"""What tests of several folders share."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from integration.postgres_server import PostgresServer, databases, postgres_server

# How long an example takes says how busy the machine is, not whether the code is right.
settings.register_profile("ale", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ale")


FIRST = [Path(__file__).with_name(name) for name in ("unit", "contract")]
"""All of these folders belongs to `make test` but what is marked `slow`; of others, what is marked `first`."""


@pytest.hookimpl(tryfirst=True)  # before pytest looks at -m
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what belongs to `make test`, and skip what is another commit's turn in CI; without ALE_CI_TURN all run."""
    turn = os.environ.get("ALE_CI_TURN", "")
    for item in items:
        if item.get_closest_marker("slow") is None and any(map(item.path.is_relative_to, FIRST)):
            item.add_marker("first")
        marker = item.get_closest_marker("turn")
        if turn and marker is not None and marker.args[0] != int(turn):
            why = f"takes long: CI runs it at commits of turn {marker.args[0]}, this one has {turn}; `make test-all` runs it"
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
