"""Hears what PostgreSQL notifies: one connection of its own, opened again whenever it is lost.

Used by the PostgreSQL store and by the replicas' membership. A notification says only that something changed; who
hears it looks up what. After every new connection all are told, since notifications may have been missed meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any

import asyncpg

from rock_env.errors import RockError
from rock_env.store.postgres.schema import CHANGES, ENVIRONMENTS, MEMBERS, PLACES, POOLS, QUOTAS

__all__ = ["NotificationListener", "follow"]

log = logging.getLogger(__name__)

_CHECK_S = 30.0
"""How often a silent connection is asked whether it still lives: a vanished server sends nothing at all."""
_ANSWER_S = 5.0
_LEAST_PAUSE_S, _MOST_PAUSE_S = 0.02, 1.0
_AGAIN_S = 5.0
"""When to read again after the database was away."""


class NotificationListener:
    """Create it with how to connect and which errors mean a lost connection; `open` and `close` it."""

    def __init__(self, connect: Callable[[], Awaitable[Any]], lost: tuple[type[BaseException], ...]) -> None:
        self._connect = connect
        self._lost = lost
        self._told: dict[str, set[asyncio.Event]] = {
            channel: set() for channel in (CHANGES, ENVIRONMENTS, MEMBERS, PLACES, POOLS, QUOTAS)
        }
        self._broken = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def open(self) -> None:
        """Start to listen; a connection that cannot be had yet is tried for until `close`."""
        self._task = asyncio.create_task(self._keep())

    async def close(self) -> None:
        """Stop. Nobody is told anything any more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))

    @contextmanager
    def listening(self, channel: str) -> Iterator[asyncio.Event]:
        """Yield an event that is set at each notification of the channel, and whenever some may have been missed.

        Clear it before looking at what it tells of.
        """
        told = asyncio.Event()
        told.set()
        self._told[channel].add(told)
        try:
            yield told
        finally:
            self._told[channel].discard(told)

    def _heard(self, _: Any, __: int, channel: str, ___: str) -> None:
        for told in tuple(self._told[channel]):
            told.set()

    async def _keep(self) -> None:
        pause_s = _LEAST_PAUSE_S
        while True:
            try:
                await self._listen()
                pause_s = _LEAST_PAUSE_S
            except (*self._lost, asyncpg.PostgresError) as error:
                log.warning("no notifications from the database for now: %s", type(error).__name__)
                pause_s = min(2 * pause_s, _MOST_PAUSE_S)
            await asyncio.sleep(pause_s)

    async def _listen(self) -> None:
        """Connect, pass on what is heard, and return when the connection is lost."""
        connection = await self._connect()
        try:
            self._broken.clear()
            connection.add_termination_listener(lambda _: self._broken.set())
            for channel in self._told:
                await connection.add_listener(channel, self._heard)
            for events in self._told.values():
                for told in events:
                    told.set()
            while not self._broken.is_set():
                with suppress(TimeoutError):
                    async with asyncio.timeout(_CHECK_S):
                        await self._broken.wait()
                if not self._broken.is_set():
                    await connection.fetchval("SELECT 1", timeout=_ANSWER_S)
        finally:
            connection.terminate()


async def follow(
    changes: AbstractContextManager[asyncio.Event], apply: Callable[[], Awaitable[None]], what: str
) -> None:
    """Call `apply` at the start and after each change, for as long as it runs; after a `RockError` of it, again later."""
    with changes as changed:
        while True:
            changed.clear()
            wait_s = None
            try:
                await apply()
            except RockError as error:
                log.warning("%s of other servers are not seen for now: %s", what, error)
                wait_s = _AGAIN_S
            try:
                async with asyncio.timeout(wait_s):
                    await changed.wait()
            except TimeoutError:
                continue
