"""What tests of several folders share."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from zlib import crc32

import pytest
from hypothesis import HealthCheck, settings
from integration.postgres_server import PostgresServer, databases, postgres_server

# How long an example takes says how busy the machine is, not whether the code is right.
settings.register_profile("ale", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ale")


FIRST = [Path(__file__).with_name(name) for name in ("unit", "contract")]
"""All of these folders belongs to `make test` but what is marked `slow`; of others, what is marked `first`."""
ALWAYS = [Path(__file__).with_name(name) for name in ("chaos", "escape")]
"""CI runs these at every commit, but what is marked with a turn."""


class NamesAtOnce:
    """Print each failure as it comes: a run that is cut off has no summary, and its failures would have no names."""

    def __init__(self, terminal: pytest.TerminalReporter) -> None:
        self.terminal = terminal

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Name a test that failed, with the end of what it said."""
        if report.failed:
            self.terminal.ensure_newline()
            self.terminal.write_line(
                f"FAILED {report.nodeid} ({report.when})\n{report.longreprtext[-1500:]}", red=True
            )


@pytest.hookimpl(trylast=True)  # after pytest made its terminal
def pytest_configure(config: pytest.Config) -> None:
    """Name failures at once where tests are spread over processes; without these pytest shows them soon enough."""
    terminal = config.pluginmanager.get_plugin("terminalreporter")
    if terminal is not None and getattr(config.option, "numprocesses", None):
        config.pluginmanager.register(NamesAtOnce(terminal))


@pytest.hookimpl(tryfirst=True)  # before pytest looks at -m
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what belongs to `make test`, and skip what is another commit's turn in CI; without ALE_CI_TURN all run.

    The turn is not handed on to what tests start: tests of guides run whole suites.
    """
    turn, spread = (os.environ.pop(f"ALE_CI_{name}", "") for name in ("TURN", "SPREAD"))
    for item in items:
        if item.get_closest_marker("slow") is None and any(map(item.path.is_relative_to, FIRST)):
            item.add_marker("first")
        if (turn and not is_its_turn(item, int(turn))) or (spread and not is_its_sixth(item, int(spread))):
            item.add_marker(pytest.mark.skip(reason="CI runs it at other commits; `make test-all` runs it"))


def is_its_turn(item: pytest.Item, turn: int) -> bool:
    """Return whether CI runs a test at this third of the commits, by its marker; without one it does at all."""
    marker = item.get_closest_marker("turn")
    return marker is None or int(marker.args[0]) == turn


def is_its_sixth(item: pytest.Item, sixth: int) -> bool:
    """Return whether CI, which spreads `make rest` over its commits, runs a test without a turn, by its file's name."""
    if item.get_closest_marker("turn") or any(map(item.path.is_relative_to, ALWAYS)):
        return True
    return crc32(item.path.name.encode()) % 6 == sixth


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
