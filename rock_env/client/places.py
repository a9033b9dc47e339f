"""What an operator sets of a server: quotas of tenants, warm pools, pushed environments, and which images may go.

Its calls need the scope `admin`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from rock_env.client.connection import ServiceConnection
from rock_env.client.credentials import Credentials
from rock_env.inventory import Collection, Limits, PoolStatus, TenantPlaces
from rock_env.proto.v1 import admin_pb2 as pb
from rock_env.proto.v1 import admin_pb2_grpc
from rock_env.spec import SandboxSpec
from rock_env.wire.inventory import (
    collected_image,
    limits,
    limits_message,
    pool_status,
    tenant_places,
)
from rock_env.wire.pushed import pack
from rock_env.wire.sandboxes import spec_message, timestamp

_COLLECT_S = 600.0
"""Engines remove large images one by one and slowly."""

__all__ = ["PlacesClient"]


class PlacesClient(ServiceConnection):
    """A connection to the server at `address`; each call may take `timeout_s`."""

    def __init__(
        self, address: str, *, credentials: Credentials | None = None, timeout_s: float = 60.0
    ) -> None:
        super().__init__(
            address, admin_pb2_grpc.AdminServiceStub, credentials=credentials, timeout_s=timeout_s
        )

    async def set_quota(self, tenant: str, limits: Limits, *, weight: float = 1.0) -> TenantPlaces:
        """Change a tenant's quota. Raise `InvalidArgument`."""
        request = pb.SetQuotaRequest(tenant=tenant, limits=limits_message(limits), weight=weight)
        return tenant_places(await self._ask("SetQuota", request))

    async def quotas(self) -> tuple[TenantPlaces, list[TenantPlaces]]:
        """Return the whole server's places, and those of each tenant that has a quota or holds or wants something."""
        reply = await self._ask("ListQuotas", pb.ListQuotasRequest())
        whole = TenantPlaces("", limits(reply.capacity), limits(reply.used), reply.waiting)
        return whole, [tenant_places(tenant) for tenant in reply.tenants]

    async def set_pool(self, spec: SandboxSpec, size: int) -> PoolStatus:
        """Keep so many boxes of a spec in stock, 0 for none. Raise `InvalidArgument`."""
        return pool_status(await self._ask("SetPool", pb.SetPoolRequest(spec=spec_message(spec), size=size)))

    async def pools(self) -> list[PoolStatus]:
        """Return all pools."""
        return [pool_status(pool) for pool in (await self._ask("ListPools", pb.ListPoolsRequest())).pools]

    async def collect_images(self, *, free_bytes: int = 0, dry_run: bool = False) -> Collection:
        """Remove built images that nothing uses until so much of the engine's disk is free (0: its own threshold)."""
        request = pb.CollectImagesRequest(free_bytes=free_bytes, dry_run=dry_run)
        reply = await self._ask("CollectImages", request, timeout_s=_COLLECT_S)
        removed, kept = (tuple(map(collected_image, images)) for images in (reply.removed, reply.kept))
        return Collection(removed, kept, reply.free_bytes)

    async def push_env(
        self,
        name: str,
        content: bytes,
        *,
        digest: str,
        source: str,
        registered_at: float,
        tasks: int,
        images: Sequence[str],
    ) -> None:
        """Offer a registered environment at the server, and at all that share its store.

        The fields are those of `rock_env.tasksets.registered.Registration`; `content` is what `content_of` there returns.
        Raise `InvalidArgument`, or `FailedPrecondition` where one of its name was registered on the server's own machine.
        """
        env = pb.RegisteredEnv(
            name=name,
            digest=digest,
            source=source,
            registered_at=timestamp(registered_at),
            tasks=tasks,
            images=images,
        )
        await self._ask("PutEnv", pb.PutEnvRequest(env=env, tasks=await asyncio.to_thread(pack, content)))

    async def remove_env(self, name: str) -> None:
        """Offer an environment no more that was pushed. Raise `UnknownName`."""
        await self._ask("RemoveEnv", pb.RemoveEnvRequest(name=name))
