"""Environments that were pushed to the servers of one store: a row each, with the tasks as `rock_env.registered` keeps them.

Used by `server/replicas/environments`.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from rock_env.store.postgres.records import PostgresStore
from rock_env.store.postgres.schema import ENVIRONMENTS

if TYPE_CHECKING:
    import asyncio

__all__ = ["StoredEnvs"]


class StoredEnvs:
    """The rows of one store."""

    def __init__(self, store: PostgresStore) -> None:
        self._store = store

    async def put(self, name: str, digest: str, record: bytes, tasks: bytes) -> None:
        """Keep an environment in place of one of the same name, and tell all servers."""
        await self._store.fetch(
            "WITH written AS (INSERT INTO rock_envs VALUES ($1, $2, $3, $4) ON CONFLICT (name) DO UPDATE "
            "SET digest = excluded.digest, record = excluded.record, tasks = excluded.tasks RETURNING name) "
            f"SELECT pg_notify('{ENVIRONMENTS}', '') FROM written",
            name,
            digest,
            record,
            tasks,
        )

    async def remove(self, name: str) -> bool:
        """Forget an environment, and tell all servers; False where there is none."""
        rows = await self._store.fetch(
            "WITH gone AS (DELETE FROM rock_envs WHERE name = $1 RETURNING name) "
            f"SELECT pg_notify('{ENVIRONMENTS}', '') FROM gone",
            name,
        )
        return bool(rows)

    async def records(self) -> dict[str, bytes]:
        """Return the records of all, by name."""
        return dict(await self._store.fetch("SELECT name, record FROM rock_envs"))

    async def get(self, name: str) -> tuple[bytes, bytes] | None:
        """Return the record and the tasks of one, or None if it is gone."""
        rows = await self._store.fetch("SELECT record, tasks FROM rock_envs WHERE name = $1", name)
        return (rows[0][0], rows[0][1]) if rows else None

    def changed(self) -> AbstractContextManager[asyncio.Event]:
        """Return a context with an event that is set when some environment may have been pushed or removed."""
        return self._store.listener.listening(ENVIRONMENTS)
