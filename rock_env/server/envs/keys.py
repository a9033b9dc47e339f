"""How environments and the Makes that ask for them are known: by tenant, by server, and among servers that share a store."""

from __future__ import annotations

import asyncio
import hashlib

from rock_env.env_workers.journal import check_key
from rock_env.errors import FailedPrecondition
from rock_env.proto.v1 import env_pb2 as pb
from rock_env.security.auth import current_tenant
from rock_env.wire.envs import fill_error

__all__ = ["Makes", "claim_of", "own_key", "prefix_of"]


def own_key(item: pb.MakeRequest) -> str:
    """Return the key of a Make among all tenants' keys; no tenant's name holds a zero. Empty if it has none.

    Raise `InvalidArgument` for one that is too long.
    """
    check_key(item.idempotency_key)
    return f"{current_tenant()}\0{item.idempotency_key}" if item.idempotency_key else ""


class Makes:
    """The replies of Makes by key, also those that are still awaited."""

    def __init__(self) -> None:
        self._of: dict[str, tuple[bytes, asyncio.Future[pb.MakeResponse]]] = {}

    def __contains__(self, key: str) -> bool:
        return key in self._of

    def __len__(self) -> int:
        return len(self._of)

    def take(self, key: str, item: pb.MakeRequest) -> tuple[asyncio.Future[pb.MakeResponse], bool]:
        """Return the reply of a Make, and whether it is to be made; one of a used key that asks for another environment
        gets an error.
        """
        reply: asyncio.Future[pb.MakeResponse] = asyncio.get_running_loop().create_future()
        if not key:
            return reply, True
        digest = hashlib.sha256(item.SerializeToString(deterministic=True)).digest()
        former, known = self._of.setdefault(key, (digest, reply))
        if former == digest:
            return known, known is reply
        wrong = FailedPrecondition(
            f"idempotency key {item.idempotency_key!r} was already used by a Make of another environment or of other "
            "arguments. Take a key of its own for this one."
        )
        reply.set_result(fill_error(pb.MakeResponse(), wrong))
        return reply, False

    def forget(self, key: str) -> None:
        """Let a key be used anew."""
        self._of.pop(key, None)


def claim_of(key: str) -> bytes:
    """Return what stands for such a key among servers that share a store."""
    return hashlib.sha256(key.encode()).digest()


def prefix_of(env_id: str) -> str:
    """Return how all ids of an environment's server begin."""
    return env_id.rpartition("-")[0]
