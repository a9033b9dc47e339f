"""What a pool of warm boxes holds: boxes in stock, boxes lent, and how many of one kind are wanted. Values only."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field, replace

from rock_env.inventory import PoolStatus
from rock_env.sandbox import Sandbox
from rock_env.spec import SandboxSpec

__all__ = ["STOCK", "Lent", "Pool", "Stocked", "pool_key", "stock_of"]

STOCK = "pool-"
"""How the ids of boxes in stock begin."""
_ANY_LIFETIME_S = SandboxSpec().lifetime_s


def pool_key(spec: SandboxSpec) -> str:
    """Return the digest of what makes a box: two specs that differ in lifetime only can share a pool."""
    return replace(spec, lifetime_s=_ANY_LIFETIME_S).digest


def stock_of(box_id: str) -> str | None:
    """Return which server's pool made this box, "" where its id does not say; None: no pool did."""
    return box_id.removeprefix(STOCK).rpartition("-")[0] if box_id.startswith(STOCK) else None


@dataclass(eq=False, slots=True)
class Stocked:
    """One box in stock."""

    box: Sandbox
    made_at: float
    watch: asyncio.Task[None] | None = None


@dataclass(eq=False, slots=True)
class Lent:
    """A durable box claimed as one that ends with this server."""

    box: Sandbox
    renew: bool
    """Nobody else renews its lease, which keeps it from outliving a killed server."""
    watch: asyncio.Task[None]


@dataclass(eq=False, slots=True)
class Pool:
    """The boxes of one kind that are kept ready."""

    spec: SandboxSpec
    target: int = 0
    ready: deque[Stocked] = field(default_factory=deque)
    starting: int = 0
    hits: int = 0
    misses: int = 0
    lost: int = 0
    failures: int = 0
    last_failure: str = ""
    backoff_s: float = 0.0
    retry_at: float = 0.0
    waits_for_room: bool = False
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    keeper: asyncio.Task[None] | None = None

    def status(self, backend: str) -> PoolStatus:
        """Return what is known of it, as of a backend of this name."""
        return PoolStatus(
            digest=pool_key(self.spec),
            backend=backend,
            spec=self.spec,
            target=self.target,
            ready=len(self.ready),
            starting=self.starting,
            hits=self.hits,
            misses=self.misses,
            lost=self.lost,
            failures=self.failures,
            last_failure=self.last_failure,
            retry_in_s=max(0.0, self.retry_at - asyncio.get_running_loop().time()) if self.retry_at else 0.0,
            waits_for_room=self.waits_for_room,
        )
