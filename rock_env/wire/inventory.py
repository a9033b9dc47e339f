"""Convert between what a node holds (`rock_env.inventory`) and the messages of the AdminService, both ways.

It converts and checks nothing else: no sockets, no state.
"""

from __future__ import annotations

from rock_env.inventory import BackendCensus, CollectedImage, Limits, PoolStatus, TenantPlaces
from rock_env.proto.v1 import admin_pb2 as pb
from rock_env.wire.sandboxes import sandbox_spec, spec_message, timestamp

__all__ = [
    "backend_census",
    "census_message",
    "collected_image",
    "image_message",
    "limits",
    "limits_message",
    "pool_message",
    "pool_status",
    "tenant_message",
    "tenant_places",
]


def census_message(census: BackendCensus) -> pb.BackendCensus:
    """Write what a backend has on its node."""
    return pb.BackendCensus(
        backend=census.backend,
        boxes=census.boxes,
        records=census.records,
        stock=census.stock,
        orphans=census.orphans,
        ghosts=census.ghosts,
        layers=census.layers,
        stray_layers=census.stray_layers,
        missing_layers=census.missing_layers,
        error=census.error,
    )


def backend_census(message: pb.BackendCensus) -> BackendCensus:
    """Read what a backend has on its node."""
    return BackendCensus(
        backend=message.backend,
        boxes=message.boxes,
        records=message.records,
        stock=message.stock,
        orphans=dict(message.orphans),
        ghosts=dict(message.ghosts),
        layers=message.layers,
        stray_layers=tuple(message.stray_layers),
        missing_layers=tuple(message.missing_layers),
        error=message.error,
    )


def limits_message(bounds: Limits) -> pb.Limits:
    """Write bounds."""
    return pb.Limits(boxes=bounds.boxes, cpus=bounds.cpus, memory_bytes=bounds.memory_bytes)


def limits(message: pb.Limits) -> Limits:
    """Read bounds; an absent field is none. Raise `InvalidArgument` for what is no amount."""
    names = ("boxes", "cpus", "memory_bytes")
    return Limits(*(getattr(message, name) if message.HasField(name) else None for name in names))


def tenant_message(places: TenantPlaces) -> pb.TenantQuota:
    """Write what a tenant may hold and holds."""
    return pb.TenantQuota(
        tenant=places.tenant,
        limits=limits_message(places.limits),
        weight=places.weight,
        used=limits_message(places.used),
        waiting=places.waiting,
    )


def tenant_places(message: pb.TenantQuota) -> TenantPlaces:
    """Read what a tenant may hold and holds."""
    return TenantPlaces(
        message.tenant, limits(message.limits), limits(message.used), message.waiting, message.weight
    )


def pool_message(status: PoolStatus) -> pb.PoolInfo:
    """Write what a warm pool has in stock."""
    return pb.PoolInfo(
        digest=status.digest,
        backend=status.backend,
        spec=spec_message(status.spec),
        target=status.target,
        ready=status.ready,
        starting=status.starting,
        hits=status.hits,
        misses=status.misses,
        lost=status.lost,
        failures=status.failures,
        last_failure=status.last_failure,
        retry_in_s=status.retry_in_s,
        waits_for_room=status.waits_for_room,
    )


def pool_status(message: pb.PoolInfo) -> PoolStatus:
    """Read what a warm pool has in stock."""
    return PoolStatus(
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


def image_message(image: CollectedImage) -> pb.CollectedImage:
    """Write a built image."""
    return pb.CollectedImage(
        image_id=image.image_id,
        size_bytes=image.size_bytes,
        names=image.names,
        used_at=timestamp(image.used_at),
        kept_because=image.kept_because,
    )


def collected_image(message: pb.CollectedImage) -> CollectedImage:
    """Read a built image."""
    return CollectedImage(
        image_id=message.image_id,
        size_bytes=message.size_bytes,
        names=tuple(message.names),
        used_at=message.used_at.ToNanoseconds() / 1e9,
        kept_because=message.kept_because,
    )
