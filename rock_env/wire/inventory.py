"""Convert between what a node holds (`rock_env.inventory`) and the messages of the AdminService, both ways.

Fields have the same names on both sides. It converts and checks nothing else: no sockets, no state.
"""

from __future__ import annotations

from rock_env.inventory import BackendCensus, CollectedImage, Limits, PoolStatus, TenantPlaces
from rock_env.proto.v1 import admin_pb2 as pb
from rock_env.wire.fields import read, written
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
    return written(census, pb.BackendCensus)


def backend_census(message: pb.BackendCensus) -> BackendCensus:
    """Read what a backend has on its node."""
    return read(message, BackendCensus)


def limits_message(bounds: Limits) -> pb.Limits:
    """Write bounds."""
    return written(bounds, pb.Limits)


def limits(message: pb.Limits) -> Limits:
    """Read bounds; an absent field is none. Raise `InvalidArgument` for what is no amount."""
    names = ("boxes", "cpus", "memory_bytes")
    return Limits(*(getattr(message, name) if message.HasField(name) else None for name in names))


def tenant_message(places: TenantPlaces) -> pb.TenantQuota:
    """Write what a tenant may hold and holds."""
    bounds = {"limits": limits_message(places.limits), "used": limits_message(places.used)}
    return written(places, pb.TenantQuota, **bounds)


def tenant_places(message: pb.TenantQuota) -> TenantPlaces:
    """Read what a tenant may hold and holds."""
    return read(message, TenantPlaces, limits=limits(message.limits), used=limits(message.used))


def pool_message(status: PoolStatus) -> pb.PoolInfo:
    """Write what a warm pool has in stock."""
    return written(status, pb.PoolInfo, spec=spec_message(status.spec))


def pool_status(message: pb.PoolInfo) -> PoolStatus:
    """Read what a warm pool has in stock."""
    return read(message, PoolStatus, spec=sandbox_spec(message.spec))


def image_message(image: CollectedImage) -> pb.CollectedImage:
    """Write a built image."""
    return written(image, pb.CollectedImage, used_at=timestamp(image.used_at))


def collected_image(message: pb.CollectedImage) -> CollectedImage:
    """Read a built image."""
    return read(message, CollectedImage)
