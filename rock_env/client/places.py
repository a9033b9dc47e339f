"""What an operator sets of a server: quotas of tenants, warm pools, and which images may go.

Called by `ale rock quota`, `ale rock pool` and `ale rock image gc`. Its calls need the scope `admin`.
"""

from __future__ import annotations

from dataclasses import dataclass

from rock_env.client.connection import ServiceConnection
from rock_env.client.credentials import Credentials
from rock_env.proto.v1 import admin_pb2 as pb
from rock_env.proto.v1 import admin_pb2_grpc
from rock_env.spec import SandboxSpec
from rock_env.wire.sandboxes import sandbox_spec, spec_message

_COLLECT_S = 600.0
"""Engines remove large images one by one and slowly."""

__all__ = ["CollectedImage", "Collection", "Held", "PlacesClient", "Pool", "TenantPlaces"]


@dataclass(frozen=True, slots=True)
class Held:
    """Amounts of a node; None where there is no bound."""

    boxes: int | None = None
    cpus: float | None = None
    memory_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class TenantPlaces:
    """One tenant's quota and what it holds; the tenant "" of a whole server stands for all of them."""

    tenant: str
    limits: Held
    used: Held
    waiting: int
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Pool:
    """One warm pool; its numbers are those of `rock_env.backends.pool.PoolStatus`."""

    digest: str
    backend: str
    spec: SandboxSpec
    target: int
    ready: int
    starting: int
    hits: int
    misses: int
    lost: int
    failures: int
    last_failure: str
    retry_in_s: float
    waits_for_room: bool


@dataclass(frozen=True, slots=True)
class CollectedImage:
    """One built image; `used_at` in seconds since the epoch."""

    image_id: str
    size_bytes: int
    names: tuple[str, ...]
    used_at: float
    kept_because: str


@dataclass(frozen=True, slots=True)
class Collection:
    """What a collection of images removed, or would have."""

    removed: tuple[CollectedImage, ...]
    kept: tuple[CollectedImage, ...]
    free_bytes: int


class PlacesClient(ServiceConnection):
    """A connection to the server at `address`; each call may take `timeout_s`."""

    def __init__(
        self, address: str, *, credentials: Credentials | None = None, timeout_s: float = 60.0
    ) -> None:
        super().__init__(
            address, admin_pb2_grpc.AdminServiceStub, credentials=credentials, timeout_s=timeout_s
        )

    async def set_quota(self, tenant: str, limits: Held, *, weight: float = 1.0) -> TenantPlaces:
        """Change a tenant's quota. Raise `InvalidArgument`."""
        request = pb.SetQuotaRequest(tenant=tenant, limits=_limits(limits), weight=weight)
        return _tenant(await self._ask("SetQuota", request))

    async def quotas(self) -> tuple[TenantPlaces, list[TenantPlaces]]:
        """Return the whole server's places, and those of each tenant that has a quota or holds or wants something."""
        reply = await self._ask("ListQuotas", pb.ListQuotasRequest())
        whole = TenantPlaces("", _held(reply.capacity), _held(reply.used), reply.waiting)
        return whole, [_tenant(tenant) for tenant in reply.tenants]

    async def set_pool(self, spec: SandboxSpec, size: int) -> Pool:
        """Keep so many boxes of a spec in stock, 0 for none. Raise `InvalidArgument`."""
        return _pool(await self._ask("SetPool", pb.SetPoolRequest(spec=spec_message(spec), size=size)))

    async def pools(self) -> list[Pool]:
        """Return all pools."""
        return [_pool(pool) for pool in (await self._ask("ListPools", pb.ListPoolsRequest())).pools]

    async def collect_images(self, *, free_bytes: int = 0, dry_run: bool = False) -> Collection:
        """Remove built images that nothing uses until so much of the engine's disk is free (0: its own threshold)."""
        request = pb.CollectImagesRequest(free_bytes=free_bytes, dry_run=dry_run)
        reply = await self._ask("CollectImages", request, timeout_s=_COLLECT_S)
        removed, kept = (tuple(map(_image, images)) for images in (reply.removed, reply.kept))
        return Collection(removed, kept, reply.free_bytes)


def _limits(held: Held) -> pb.Limits:
    return pb.Limits(boxes=held.boxes, cpus=held.cpus, memory_bytes=held.memory_bytes)


def _held(message: pb.Limits) -> Held:
    names = ("boxes", "cpus", "memory_bytes")
    return Held(*(getattr(message, name) if message.HasField(name) else None for name in names))


def _tenant(message: pb.TenantQuota) -> TenantPlaces:
    limits, used = _held(message.limits), _held(message.used)
    return TenantPlaces(message.tenant, limits, used, message.waiting, message.weight)


def _pool(message: pb.PoolInfo) -> Pool:
    return Pool(
        digest=message.digest,
        backend=message.backend,
        spec=sandbox_spec(message.spec),
        target=message.target,
        ready=message.ready,
        starting=message.starting,
        hits=message.hits,
        misses=message.misses,
        lost=message.lost,
        failures=message.failures,
        last_failure=message.last_failure,
        retry_in_s=message.retry_in_s,
        waits_for_room=message.waits_for_room,
    )


def _image(message: pb.CollectedImage) -> CollectedImage:
    used_at = message.used_at.ToNanoseconds() / 1e9
    return CollectedImage(
        message.image_id, message.size_bytes, tuple(message.names), used_at, message.kept_because
    )
