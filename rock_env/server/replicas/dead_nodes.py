"""Ends the records of sandboxes that no server that lives can take up, at their lease or lifetime; nobody else would.

They are those of a node without a server, and those of a site that no server reaches.

Run by `server/replicas/member`. One server does so at a time, the one that has an advisory lock of the database for as
long as a look takes. It acts when a member comes or goes and at the next deadline. Boxes end by themselves, in the guest;
a node that comes back finds their records ended and takes none up. Snapshots stay for it to collect.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from rock_env.errors import RockError
from rock_env.lifecycle import Deadline, SandboxRecord, SandboxState, hard_deadline
from rock_env.server.sandboxes.core import SandboxCore
from rock_env.server.sandboxes.ledger import LIVE
from rock_env.store.base import Overtaken, Query
from rock_env.store.postgres.members import Members
from rock_env.store.postgres.records import PostgresStore
from rock_env.store.postgres.schema import ENDING

__all__ = ["DeadNodes"]

log = logging.getLogger(__name__)

_AGAIN_S = 5.0
"""When to look again after another server did, or the database was away."""


class DeadNodes:
    """`own_id` tells in whose name the records are changed: a server that was declared dead changes none."""

    def __init__(
        self, store: PostgresStore, members: Members, core: SandboxCore, own_id: Callable[[], str]
    ) -> None:
        self._store = store
        self._members = members
        self._core = core
        self._own_id = own_id

    async def watch(self) -> None:
        """End what is due, again and again."""
        with self._members.listening() as changed:
            while True:
                changed.clear()
                wait_s: float | None = _AGAIN_S
                try:
                    wait_s = await self._store.transact(self._look)
                except RockError as error:
                    log.warning("the sandboxes of dead nodes are not seen for now: %s", error)
                with suppress(TimeoutError):
                    # Not wait_for: before Python 3.12 it loses a cancellation that comes together with the event.
                    async with asyncio.timeout(wait_s):
                        await changed.wait()

    async def _look(self, connection: Any) -> float | None:
        """End what is due; return when to look again, None: when a member comes or goes."""
        if not await connection.fetchval("SELECT pg_try_advisory_xact_lock($1)", ENDING):
            return _AGAIN_S
        living = (await self._members.all()).values()
        waits = []
        for record in await self._store.find(Query(states=LIVE)):
            if record.owner and not any(member.reaches(record) for member in living):
                deadline = hard_deadline(record)
                left_s = deadline.at - self._core.ledger.now()
                if left_s > 0:
                    waits.append(left_s)
                else:
                    await self._end(record, deadline)
        return min(waits, default=None)

    async def _end(self, record: SandboxRecord, deadline: Deadline) -> None:
        where = f"that reaches {record.site!r}" if record.site else f"of its node {record.node!r}"
        reason = f"{deadline.kind}, and no server {where} lives"
        ended = replace(self._core.lives.ended(record, reason), owner=self._own_id())
        if record.state in (SandboxState.PENDING, SandboxState.STARTING):
            ended = replace(ended, idempotency_key="")  # never answered: its caller's retry starts afresh
        try:
            await self._store.save(ended)
        except Overtaken:
            return  # a server of the node is back and has it: that one ends it
        log.warning("ended a sandbox of a dead node sandbox_id=%s of=%s", record.id, record.owner)
