"""A tenant's quota over all servers of a store: what they hold together is counted in the store, before each box is made.

Made by `server/replicas/member`. The queue of each server decides who is next there (`capacity/admission`); whether the
tenant may hold one more at all is decided here, by one transaction. Quotas that an operator sets are in the store, too.
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
from rock_env.server.replicas.following import follow
from rock_env.store.postgres.places import StoredPlaces
from rock_env.store.postgres.records import PostgresStore
from rock_env.store.postgres.settings import Row

__all__ = ["SharedPlaces"]

_decoder = msgspec.json.Decoder(Quota)


class SharedPlaces:
    """Satisfies `sandboxes.ownership.SharedCount`."""

    def __init__(self, store: PostgresStore) -> None:
        self._stored = StoredPlaces(store)

    async def take(self, record: SandboxRecord, limits: Limits) -> bool:
        """Let a sandbox hold its tenant's place until its record ends; False where the tenant would exceed the limits."""
        amount = Ask.of(record.spec.resources).amount
        return await self._stored.take(record.id, record.tenant, amount, limits)

    def given_back(self) -> AbstractContextManager[asyncio.Event]:
        """Return a context with an event that is set when a place may have come free."""
        return self._stored.given_back()

    async def held(self) -> Mapping[str, Amount]:
        """Return what each tenant holds over all servers."""
        return await self._stored.held()

    async def set_quota(self, tenant: str, quota: Quota) -> None:
        """Change a tenant's quota at every server. Raise `Unavailable`, and change nothing, if it cannot be kept.

        Raise `Overtaken` where somebody else set it at the same time.
        """
        quotas = self._stored.quotas
        await quotas.change(tenant, await quotas.get(tenant), (msgspec.json.encode(quota),))

    async def follow(self, admission: Admission) -> None:
        """Hand what this server's folder still holds to the store, then apply each change, for as long as it runs."""
        own: dict[str, Row] = {
            tenant: (msgspec.json.encode(quota),) for tenant, quota in admission.kept_quotas().items()
        }

        async def apply() -> None:
            nonlocal own
            if own:
                await self._stored.quotas.fill(own)
                own = {}
            quotas = await self._stored.quotas.all()
            try:
                admission.follow({tenant: _decoder.decode(text) for tenant, (text,) in quotas.items()})
            except msgspec.DecodeError as error:
                raise InfraError(str(error)) from error

        await follow(self._stored.quotas.changed(), apply, "quotas")
