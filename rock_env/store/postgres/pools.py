"""The warm pools that the servers of one store keep together: a row for each.

Used by `server/replicas/pools`.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from rock_env.store.postgres.records import PostgresStore
from rock_env.store.postgres.schema import POOLS

if TYPE_CHECKING:
    import asyncio

__all__ = ["StoredPools"]


class StoredPools:
    """The rows of one store."""

    def __init__(self, store: PostgresStore) -> None:
        self._store = store

    async def all(self) -> dict[bytes, bytes]:
        """Return the records by key."""
        rows = await self._store.fetch("SELECT key, record FROM rock_pools")
        return {bytes(key): bytes(record) for key, record in rows}

    async def put(self, records: Mapping[bytes, bytes], *, replace: bool) -> None:
        """Write records and tell all servers; without `replace` a pool that is there stays as it is."""
        change = "UPDATE SET record = excluded.record" if replace else "NOTHING"
        await self._store.fetch(
            f"WITH written AS (INSERT INTO rock_pools SELECT * FROM unnest($1::bytea[], $2::bytea[]) "
            f"ON CONFLICT (key) DO {change} RETURNING key) SELECT pg_notify('{POOLS}', '') FROM written",
            list(records),
            list(records.values()),
        )

    async def remove(self, key: bytes) -> None:
        """Forget a pool and tell all servers."""
        await self._store.fetch(
            "WITH gone AS (DELETE FROM rock_pools WHERE key = $1 RETURNING key) "
            f"SELECT pg_notify('{POOLS}', '') FROM gone",
            key,
        )

    def changed(self) -> AbstractContextManager[asyncio.Event]:
        """Return a context with an event that is set when some pool may have been set."""
        return self._store.listener.listening(POOLS)
