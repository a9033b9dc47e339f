"""What the tenants of one store hold over all of its servers, and the quotas that were set for them.

Used by `server/replicas/places`. Each sandbox that may have a box holds one place, from before the box is made until its
record says that it ended; the database gives it back by itself, whoever wrote that record.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from rock_env.inventory import Amount, Limits
from rock_env.store.postgres.records import PostgresStore
from rock_env.store.postgres.schema import PLACES, QUOTAS
from rock_env.store.postgres.settings import StoredSettings

if TYPE_CHECKING:
    import asyncio

__all__ = ["StoredPlaces"]


class StoredPlaces:
    """The rows of one store."""

    def __init__(self, store: PostgresStore) -> None:
        self._store = store
        self.quotas: StoredSettings[str] = StoredSettings(
            store, "rock_quotas", "tenant", ("quota",), channel=QUOTAS
        )

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
