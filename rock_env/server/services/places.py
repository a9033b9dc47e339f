"""The AdminService's calls on what a node holds: quotas, warm pools and the image cache.

Put together by `server/node`, registered by `server/services/admin`. It converts, and keeps nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from rock_env.backends.pool import PooledBackend
from rock_env.backends.router import BackendRouter
from rock_env.errors import InvalidArgument, RockError, Unimplemented
from rock_env.inventory import Amount, Limits, TenantPlaces
from rock_env.proto.v1 import admin_pb2 as pb
from rock_env.security.auth import check_tenant, current_tenant
from rock_env.server.calls import Context, guarded
from rock_env.server.capacity.admission import Admission
from rock_env.server.capacity.pools import PoolFile, PoolKeeper, PoolWish
from rock_env.server.capacity.quotas import Quota
from rock_env.server.images.cache import ImageCache
from rock_env.server.packages.mirror import asks
from rock_env.server.sandboxes.ownership import SharedCount
from rock_env.spec import SandboxSpec
from rock_env.wire.inventory import image_message, limits, limits_message, pool_message, tenant_message
from rock_env.wire.sandboxes import sandbox_spec

__all__ = ["PlaceCalls", "Places"]

log = logging.getLogger(__name__)

Pin = Callable[[str, SandboxSpec], Awaitable[SandboxSpec]]


@dataclass(frozen=True, slots=True)
class Places:
    """The handlers. `cache` None: this server offers no images."""

    admission: Admission
    backends: BackendRouter
    pools: PoolFile
    pin: Pin
    provide: Callable[[str, SandboxSpec], SandboxSpec]
    """Resolves the package mirror that a tenant's spec asks for."""
    image_node: Callable[[SandboxSpec], str]
    """Returns the node whose images a spec's boxes are made of; empty where they are no node's."""
    cache: ImageCache | None = None
    shared: SharedCount | None = None
    """What counts the tenants' places where several servers share a store."""
    shared_pools: PoolKeeper | None = None

    def resume(self) -> None:
        """Stock the pools that were kept, from now on. One that cannot be set is left out, and is said in the log."""
        if self.shared_pools is not None:
            self.shared_pools.begin(self._keep)
        for wish in self.pools.wishes.values():
            self._keep(wish, wish.size)

    def _keep(self, wish: PoolWish, size: int) -> bool:
        """Stock so many of the boxes here from now on; False, and a warning, where that is not possible."""
        try:
            spec = self.provide(wish.tenant, wish.spec)
            self._pooled(spec).set_target(spec, size)
        except RockError as error:
            log.warning("a pool of %d boxes is not stocked here: %s", size, error)
            return False
        return True

    async def set_quota(self, request: pb.SetQuotaRequest, _: Context) -> pb.TenantQuota:
        """Change a tenant's quota; "" is the owner of a server without tokens."""
        tenant = check_tenant(request.tenant) if request.tenant else ""
        quota = Quota(limits(request.limits), request.weight or 1.0)
        if self.shared is None:
            self.admission.set_quota(tenant, quota)
        else:
            await self.shared.set_quota(tenant, quota)
            self.admission.follow({**self.admission.kept_quotas(), tenant: quota})
        return self._tenant(tenant, await self._held())

    async def list_quotas(self, _: pb.ListQuotasRequest, __: Context) -> pb.ListQuotasResponse:
        """Return the capacity, and each tenant that has a quota of its own, holds or wants something."""
        admission, held = self.admission, await self._held()
        return pb.ListQuotasResponse(
            capacity=limits_message(admission.capacity),
            used=limits_message(_used(admission.used)),
            waiting=admission.waiting,
            tenants=[self._tenant(each, held) for each in sorted({*admission.tenants(), *(held or ())})],
        )

    async def _held(self) -> Mapping[str, Amount] | None:
        """Return what each tenant holds over all servers; None: on this one, which has its store alone."""
        return None if self.shared is None else await self.shared.held()

    async def set_pool(self, request: pb.SetPoolRequest, _: Context) -> pb.PoolInfo:
        """Keep so many boxes of a spec in stock. Raise `InvalidArgument` for an image there is not."""
        tenant, asked = current_tenant(), sandbox_spec(request.spec)
        spec = await self.pin(tenant, asked)
        owner, node = tenant if asks(asked) else "", self.image_node(asked)
        wish = PoolWish(replace(asked, image=spec.image), request.size, owner, node)
        pooled = self._pooled(spec)
        if not self.admission.capacity.hold(Amount(boxes=request.size)):
            raise InvalidArgument(
                f"a pool of {request.size} is more than this server holds: {self.admission.capacity.boxes} boxes."
            )
        if self.shared_pools is None:
            pooled.set_target(spec, request.size)
            self.pools.set(wish)
        else:
            pooled.check_target(request.size)
            await self.shared_pools.set(wish)
        return pool_message(pooled.status_of(spec))

    async def list_pools(self, _: pb.ListPoolsRequest, __: Context) -> pb.ListPoolsResponse:
        """Return all pools."""
        pooled = [backend for backend in self.backends if isinstance(backend, PooledBackend)]
        return pb.ListPoolsResponse(
            pools=[pool_message(status) for backend in pooled for status in backend.status()]
        )

    async def collect_images(self, request: pb.CollectImagesRequest, _: Context) -> pb.CollectImagesResponse:
        """Remove images that nothing uses, or say which."""
        if self.cache is None:
            raise Unimplemented("this server offers no images, so it has none to remove")
        done = await self.cache.collect(free_bytes=request.free_bytes, dry_run=request.dry_run)
        return pb.CollectImagesResponse(
            removed=map(image_message, done.removed),
            kept=map(image_message, done.kept),
            free_bytes=done.free_bytes,
        )

    def _pooled(self, spec: SandboxSpec) -> PooledBackend:
        backend = self.backends.hosting(spec)
        if not isinstance(backend, PooledBackend):
            raise Unimplemented(f"the {backend.name} backend of this server keeps no pools")
        return backend

    def _tenant(self, tenant: str, held: Mapping[str, Amount] | None) -> pb.TenantQuota:
        quota = self.admission.quota(tenant)
        used = self.admission.used_by(tenant) if held is None else held.get(tenant, Amount())
        waiting = self.admission.waiting_of(tenant)
        return tenant_message(TenantPlaces(tenant, quota.limits, _used(used), waiting, quota.weight))


def _used(amount: Amount) -> Limits:
    return Limits(amount.boxes, amount.millicpus / 1000, amount.memory_bytes)


class PlaceCalls:
    """The handlers as gRPC calls them; the AdminService inherits them."""

    places: Places

    async def SetQuota(self, request: pb.SetQuotaRequest, context: Any) -> pb.TenantQuota:  # noqa: N802
        """Change what one tenant may hold."""
        return await guarded(self.places.set_quota)(request, context)

    async def ListQuotas(self, request: pb.ListQuotasRequest, context: Any) -> pb.ListQuotasResponse:  # noqa: N802
        """Show what is held, by whom, and who waits."""
        return await guarded(self.places.list_quotas)(request, context)

    async def SetPool(self, request: pb.SetPoolRequest, context: Any) -> pb.PoolInfo:  # noqa: N802
        """Keep boxes of a spec in stock."""
        return await guarded(self.places.set_pool)(request, context)

    async def ListPools(self, request: pb.ListPoolsRequest, context: Any) -> pb.ListPoolsResponse:  # noqa: N802
        """Show what is in stock."""
        return await guarded(self.places.list_pools)(request, context)

    async def CollectImages(  # noqa: N802
        self, request: pb.CollectImagesRequest, context: Any
    ) -> pb.CollectImagesResponse:
        """Remove images that nothing uses."""
        return await guarded(self.places.collect_images)(request, context)
