"""How environments and the Makes that ask for them are known: by tenant, by server, and among servers that share a store."""

from __future__ import annotations

import hashlib

from rock_env.env_workers.journal import check_key
from rock_env.proto.v1 import env_pb2 as pb
from rock_env.security.auth import current_tenant

__all__ = ["claim_of", "own_key", "prefix_of"]


def own_key(item: pb.MakeRequest) -> str:
    """Return the key of a Make among all tenants' keys; no tenant's name holds a zero. Empty if it has none.

    Raise `InvalidArgument` for one that is too long.
    """
    check_key(item.idempotency_key)
    return f"{current_tenant()}\0{item.idempotency_key}" if item.idempotency_key else ""


def claim_of(key: str) -> bytes:
    """Return what stands for such a key among servers that share a store."""
    return hashlib.sha256(key.encode()).digest()


def prefix_of(env_id: str) -> str:
    """Return how all ids of an environment's server begin."""
    return env_id.rpartition("-")[0]
