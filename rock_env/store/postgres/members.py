"""Which servers share a PostgreSQL store, and who of them lives: a row with a lease for each.

Used by `server/replicas/member`. All times are the database's own, so the servers' clocks need not agree. Every change of
who is there is notified.
"""

from __future__ import annotations

import asyncio
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import timedelta

from rock_env.store.postgres.records import PostgresStore
from rock_env.store.postgres.schema import MEMBERS

__all__ = ["Member", "Members"]

_NOTIFY = f"SELECT count(*) FROM changed, LATERAL pg_notify('{MEMBERS}', changed.id)"


@dataclass(frozen=True, slots=True)
class Member:
    """One server that is thought to live."""

    id: str
    node: str
    """Where its boxes are: only a server there can take them up."""
    address: str
    """Where other servers reach it."""
    draining: bool
    expires_in_s: float
    """How long its lease lasts still; negative for one that is overdue."""


class Members:
    """The rows of one store."""

    def __init__(self, store: PostgresStore) -> None:
        self._store = store

    async def secret(self) -> bytes:
        """Return what all servers of the store know and nobody else."""
        return bytes((await self._store.fetch("SELECT secret FROM rock_secret"))[0][0])

    async def join(self, member_id: str, *, node: str, address: str, lease_s: float) -> None:
        """Become a member for `lease_s` from now."""
        await self._store.fetch(
            "WITH changed AS (INSERT INTO rock_replicas VALUES ($1, $2, $3, clock_timestamp() + $4) "
            f"ON CONFLICT (id) DO UPDATE SET lease_expires_at = clock_timestamp() + $4 RETURNING id) {_NOTIFY}",
            member_id,
            node,
            address,
            timedelta(seconds=lease_s),
        )

    async def renew(self, member_id: str, *, lease_s: float) -> bool:
        """Remain a member for `lease_s` from now; return False if one has been declared dead."""
        return bool(
            await self._store.fetch(
                "UPDATE rock_replicas SET lease_expires_at = clock_timestamp() + $2 WHERE id = $1 RETURNING id",
                member_id,
                timedelta(seconds=lease_s),
            )
        )

    async def drain(self, member_id: str) -> None:
        """Say that this server takes up nothing any more."""
        await self._store.fetch(
            f"WITH changed AS (UPDATE rock_replicas SET draining = true WHERE id = $1 RETURNING id) {_NOTIFY}",
            member_id,
        )

    async def leave(self, member_id: str) -> None:
        """Be no member any more: what it still owns is anybody's."""
        await self._store.fetch(
            f"WITH changed AS (DELETE FROM rock_replicas WHERE id = $1 RETURNING id) {_NOTIFY}", member_id
        )

    async def bury(self) -> None:
        """Declare dead whose lease is over."""
        await self._store.fetch(
            "WITH changed AS (DELETE FROM rock_replicas WHERE lease_expires_at <= clock_timestamp() RETURNING id) "
            f"{_NOTIFY}"
        )

    async def all(self) -> dict[str, Member]:
        """Return the members by id."""
        rows = await self._store.fetch(
            "SELECT id, node, address, draining, extract(epoch FROM lease_expires_at - clock_timestamp())::float "
            "FROM rock_replicas ORDER BY id"
        )
        return {row[0]: Member(*row) for row in rows}

    def listening(self) -> AbstractContextManager[asyncio.Event]:
        """Yield an event that is set whenever the members may have changed."""
        return self._store.listener.listening(MEMBERS)
