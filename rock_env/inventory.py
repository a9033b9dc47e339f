"""What a server's node holds, as its operator sees it: the census of a backend, places, warm pools and built images.

Values only, the same on both sides of the AdminService; `rock_env.wire.inventory` has their messages.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rock_env.errors import InvalidArgument
from rock_env.spec import SandboxSpec

__all__ = [
    "Amount",
    "BackendCensus",
    "CollectedImage",
    "Collection",
    "Limits",
    "PoolStatus",
    "TenantPlaces",
]

_MOST = 1 << 53


@dataclass(frozen=True, slots=True)
class BackendCensus:
    """What exists on the node against what should, for one backend."""

    backend: str
    boxes: int = 0
    records: int = 0
    stock: int = 0
    """Boxes of warm pools, or just handed out by one."""
    orphans: Mapping[str, str] = field(default_factory=dict)
    """Boxes that no sandbox has: id -> what it is."""
    ghosts: Mapping[str, str] = field(default_factory=dict)
    """Sandboxes that are said to run and have no box: sandbox id -> box id."""
    layers: int = 0
    stray_layers: tuple[str, ...] = ()
    """Layers on the node that no snapshot needs."""
    missing_layers: tuple[str, ...] = ()
    """Snapshots whose layer is not there."""
    error: str = ""
    """Why the backend, or its layers, could not be asked; what is unknown is 0 or empty then."""


@dataclass(frozen=True, slots=True)
class Amount:
    """An exact amount of a node: boxes, thousandths of a CPU, bytes. Integers, so that sums come back to zero."""

    boxes: int = 0
    millicpus: int = 0
    memory_bytes: int = 0

    def __add__(self, other: Amount) -> Amount:
        return Amount(
            self.boxes + other.boxes,
            self.millicpus + other.millicpus,
            self.memory_bytes + other.memory_bytes,
        )

    def __sub__(self, other: Amount) -> Amount:
        return Amount(
            self.boxes - other.boxes,
            self.millicpus - other.millicpus,
            self.memory_bytes - other.memory_bytes,
        )


@dataclass(frozen=True, slots=True)
class Limits:
    """An upper bound in each dimension; None is no bound."""

    boxes: int | None = None
    cpus: float | None = None
    memory_bytes: int | None = None

    def __post_init__(self) -> None:
        for name in ("boxes", "cpus", "memory_bytes"):
            value = getattr(self, name)
            if value is not None and not 0 <= value <= _MOST:
                raise InvalidArgument(f"{name} of a limit must be from 0 to {_MOST}, got {value!r}")

    def pairs(self, amount: Amount) -> list[tuple[str, int, int]]:
        """Return (dimension, amount, bound) where there is a bound; CPUs in thousandths."""
        bounds = (
            ("boxes", amount.boxes, self.boxes),
            ("cpus", amount.millicpus, None if self.cpus is None else round(self.cpus * 1000)),
            ("memory_bytes", amount.memory_bytes, self.memory_bytes),
        )
        return [(name, value, bound) for name, value, bound in bounds if bound is not None]

    def hold(self, amount: Amount) -> bool:
        """Return whether the amount is within every bound."""
        return all(value <= bound for _, value, bound in self.pairs(amount))

    def dominant_share(self, amount: Amount) -> float:
        """Return the largest part of any bound that the amount takes."""
        return max((value / bound for _, value, bound in self.pairs(amount) if bound), default=0.0)


@dataclass(frozen=True, slots=True)
class TenantPlaces:
    """One tenant's quota and what it holds; the tenant "" of a whole server stands for all of them."""

    tenant: str
    limits: Limits
    used: Limits
    waiting: int
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class PoolStatus:
    """What an operator sees of one pool. Counts are since the server started."""

    digest: str
    backend: str
    spec: SandboxSpec
    target: int
    ready: int
    starting: int
    hits: int
    """Creates that were given a box in stock."""
    misses: int
    """Creates of this spec that found none."""
    lost: int
    """Boxes that died, did not answer or grew too old in stock."""
    failures: int
    """Boxes that did not start."""
    last_failure: str
    """Why the last one did not; empty since one did."""
    retry_in_s: float
    """When it is tried again, 0 if it is not waiting for that."""
    waits_for_room: bool
    """The node is full: stock is not made at the cost of sandboxes."""


@dataclass(frozen=True, slots=True)
class CollectedImage:
    """One image the registry knows; `used_at` in seconds since the epoch."""

    image_id: str
    size_bytes: int
    names: tuple[str, ...]
    used_at: float
    kept_because: str = ""
    """Empty: nothing uses it."""


@dataclass(frozen=True, slots=True)
class Collection:
    """What a collection removed, or would have."""

    removed: tuple[CollectedImage, ...]
    kept: tuple[CollectedImage, ...]
    free_bytes: int
    """Of the engine's disk; afterwards, or after a dry run as it would be at best."""
