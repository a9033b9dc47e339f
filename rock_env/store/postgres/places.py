"""What the tenants of one store hold over all of its servers, and the quotas that were set for them.

Used by `server/replicas/places`. Each sandbox that may have a box holds one place, from before the box is made until its
record says that it ended; the database gives it back by itself, whoever wrote that record.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from rock_env.inventory import Amount, Limits
from rock_env.store.postgres.records import PostgresStore
from rock_env.store.postgres.schema import PLACES, QUOTAS

if TYPE_CHECKING:
    import asyncio

__all__ = ["StoredPlaces"]


class StoredPlaces:
    """The rows of one store."""

    def __init__(self, store: PostgresStore) -> None:
        self._store = store

    async def take(self, sandbox_id: str, tenant: str, amount: Amount, limits: Limits) -> bool:
        """Let a sandbox that is recorded hold its place; False where the tenant would hold more than the limits then.

        Safe to repeat. A sandbox that ended meanwhile gets none, which is no refusal.
        """
        most_millicpus = None if limits.cpus is None else round(limits.cpus * 1000)
        rows = await self._store.fetch(
            "SELECT rock_place($1, $2, $3, $4, $5, $6, $7)",
            sandbox_id,
            tenant,
            amount.millicpus,
            amount.memory_bytes,
            limits.boxes,
            most_millicpus,
            limits.memory_bytes,
        )
        return bool(rows[0][0])

    async def held(self) -> dict[str, Amount]:
        """Return what each tenant holds."""
        rows = await self._store.fetch(
            "SELECT tenant, count(*), sum(millicpus)::bigint, sum(memory_bytes)::bigint FROM rock_places GROUP BY tenant"
        )
        return {tenant: Amount(boxes, millicpus, memory) for tenant, boxes, millicpus, memory in rows}

    def given_back(self) -> AbstractContextManager[asyncio.Event]:
        """Return a context with an event that is set when some tenant's place may have come free."""
        return self._store.listener.listening(PLACES)

    async def quotas(self) -> dict[str, bytes]:
        """Return the quotas that were set, as they were written."""
        return dict(await self._store.fetch("SELECT tenant, quota FROM rock_quotas"))

    async def set_quotas(self, quotas: Mapping[str, bytes], *, replace: bool) -> None:
        """Write quotas and tell all servers; without `replace` a tenant that has one keeps it."""
        change = "UPDATE SET quota = excluded.quota" if replace else "NOTHING"
        await self._store.fetch(
            f"WITH written AS (INSERT INTO rock_quotas SELECT * FROM unnest($1::text[], $2::bytea[]) "
            f"ON CONFLICT (tenant) DO {change} RETURNING tenant) SELECT pg_notify('{QUOTAS}', '') FROM written",
            list(quotas),
            list(quotas.values()),
        )

    def quotas_changed(self) -> AbstractContextManager[asyncio.Event]:
        """Return a context with an event that is set when some quota may have been changed."""
        return self._store.listener.listening(QUOTAS)
