"""A tenant's quota over all servers of a store: what they hold together is counted in the store, before each box is made.

Made by `server/replicas/member`. The queue of each server decides who is next there (`capacity/admission`); whether the
tenant may hold one more at all is decided here, by one transaction. Each sandbox that may have a box holds one place, until
its record says that it ended; the database gives the place back by itself, whoever wrote that record. Quotas that an
operator sets are in the store, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AbstractContextManager

import msgspec

from rock_env.errors import InfraError
from rock_env.inventory import Amount, Limits
from rock_env.lifecycle import SandboxRecord
from rock_env.server.capacity.admission import Admission
from rock_env.server.capacity.quotas import Ask, Quota
from rock_env.store.postgres.listener import follow
from rock_env.store.postgres.records import PostgresStore
from rock_env.store.postgres.schema import PLACES, QUOTAS
from rock_env.store.postgres.settings import Row, StoredSettings

__all__ = ["SharedPlaces"]

_decoder = msgspec.json.Decoder(Quota)


class SharedPlaces:
    """Satisfies `server.sandboxes.ownership.SharedCount`."""

    def __init__(self, store: PostgresStore) -> None:
        self._store = store
        self._quotas: StoredSettings[str] = StoredSettings(
            store, "rock_quotas", "tenant", ("quota",), channel=QUOTAS
        )

    async def take(self, record: SandboxRecord, limits: Limits) -> bool:
        """Let a sandbox hold its tenant's place until its record ends; False where the tenant would exceed the limits.

        Safe to repeat. A sandbox that ended meanwhile gets none, which is no refusal.
        """
        amount = Ask.of(record.spec.resources).amount
        most_millicpus = None if limits.cpus is None else round(limits.cpus * 1000)
        rows = await self._store.fetch(
            "SELECT rock_place($1, $2, $3, $4, $5, $6, $7)",
            record.id,
            record.tenant,
            amount.millicpus,
            amount.memory_bytes,
            limits.boxes,
            most_millicpus,
            limits.memory_bytes,
        )
        return bool(rows[0][0])

    def given_back(self) -> AbstractContextManager[asyncio.Event]:
        """Return a context with an event that is set when a place may have come free."""
        return self._store.listener.listening(PLACES)

    async def held(self) -> Mapping[str, Amount]:
        """Return what each tenant holds over all servers."""
        rows = await self._store.fetch(
            "SELECT tenant, count(*), sum(millicpus)::bigint, sum(memory_bytes)::bigint FROM rock_places GROUP BY tenant"
        )
        return {tenant: Amount(boxes, millicpus, memory) for tenant, boxes, millicpus, memory in rows}

    async def set_quota(self, tenant: str, quota: Quota) -> None:
        """Change a tenant's quota at every server. Raise `Unavailable`, and change nothing, if it cannot be kept.

        Raise `Overtaken` where somebody else set it at the same time.
        """
        before = await self._quotas.get(tenant)
        await self._quotas.change(tenant, before, (msgspec.json.encode(quota),))

    async def follow(self, admission: Admission) -> None:
        """Hand what this server's folder still holds to the store, then apply each change, for as long as it runs."""
        own: dict[str, Row] = {
            tenant: (msgspec.json.encode(quota),) for tenant, quota in admission.kept_quotas().items()
        }

        async def apply() -> None:
            nonlocal own
            if own:
                await self._quotas.fill(own)
                own = {}
            quotas = await self._quotas.all()
            try:
                admission.follow({tenant: _decoder.decode(text) for tenant, (text,) in quotas.items()})
            except msgspec.DecodeError as error:
                raise InfraError(str(error)) from error

        await follow(self._quotas.changed(), apply, "quotas")
