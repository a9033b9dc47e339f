"""What tests of several folders share."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from hypothesis import HealthCheck, settings
from integration.postgres_server import PostgresServer, databases, postgres_server

# How long an example takes says how busy the machine is, not whether the code is right.
settings.register_profile("ale", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ale")


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
