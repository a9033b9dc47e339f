"""How many connections are let in at once, and how far apart after that."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator

import pytest

from rock_env.wire import arrivals
from rock_env.wire.arrivals import Arrivals


class Connection(asyncio.Protocol):
    transport: asyncio.BaseTransport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def end(self) -> None:
        self.transport.close()


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0), backlog=256) as made:
        made.setblocking(False)
        yield made


@pytest.fixture
def callers(listener: socket.socket) -> Iterator[Callable[[int], None]]:
    """Connect so many clients."""
    made: list[socket.socket] = []

    def connect(count: int) -> None:
        made.extend(socket.create_connection(listener.getsockname()) for _ in range(count))

    yield connect
    for each in made:
        each.close()


async def let_in(listener: socket.socket, rounds: int = 500) -> tuple[int, int]:
    """Return how many connections are let in before the first pause, most of them in one turn of the loop."""
    made: list[Connection] = []
    turns: list[int] = []

    def make() -> Connection:
        made.append(Connection())
        return made[-1]

    door = Arrivals(listener, make)
    door.open()
    for _ in range(rounds):
        before = len(made)
        await asyncio.sleep(0)
        turns.append(len(made) - before)
    await closed(door)
    return len(made), max(turns)


async def closed(door: Arrivals) -> None:
    """Close the door, and let every connection end."""
    door.close()
    for _ in range(5):
        await asyncio.sleep(0)


async def test_clients_that_start_together_do_not_wait_for_each_other(
    listener: socket.socket, callers: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrivals, "_APART_S", 600.0)
    callers(60)
    count, at_most = await let_in(listener)
    assert count == arrivals._AT_ONCE
    assert at_most <= arrivals._ACCEPTS, "a turn of the loop is for others, too"


async def test_in_a_crowd_each_connection_waits_its_distance(
    listener: socket.socket, callers: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrivals, "_CROWD", 0)
    monkeypatch.setattr(arrivals, "_CROWD_APART_S", 600.0)
    callers(8)
    count, _ = await let_in(listener)
    assert count == 1


async def test_after_the_distance_the_next_is_let_in(
    listener: socket.socket, callers: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrivals, "_AT_ONCE", 1)
    callers(6)
    made = asyncio.Semaphore(0)

    def make() -> Connection:
        made.release()
        return Connection()

    door = Arrivals(listener, make)
    door.open()
    async with asyncio.timeout(20):
        for _ in range(6):
            await made.acquire()
    await closed(door)
