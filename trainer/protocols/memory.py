"""How a model says what a run takes: in memory, one role for each kind of process, and in checkpoints, by its parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

__all__ = ["HOST", "STORE", "Parameters", "Part", "Role", "TellsPart"]

STORE = "store"
HOST = "host"
"""The memory beside every device."""


class Parameters(NamedTuple):
    """How many numbers a model has."""

    trained: int
    """Those that an update changes: a checkpoint has them and their two moments, in float32."""
    published: int
    """Those that samplers are sent, of which a run may keep earlier versions."""


@dataclass(frozen=True, slots=True)
class Part:
    """How large one forward and backward pass of a learner is."""

    tokens: int
    """Those that are computed, padding included; what rows begin with in common counts once where it is computed once."""
    trained: int
    """Those that train."""

    def beside(self, other: Part | None) -> Part:
        """Return a part that is as large as each of two."""
        if other is None:
            return self
        return Part(max(self.tokens, other.tokens), max(self.trained, other.trained))


@runtime_checkable
class TellsPart(Protocol):
    """A train engine that knows how large its passes are."""

    largest: Part | None
    """Of the passes of `step` so far; None before the first."""


@dataclass(frozen=True, slots=True)
class Role:
    """Processes of one kind, or what one of them keeps beside its main part."""

    name: str
    processes: int
    device: str
    total: int
    """Of one process."""
    parts: Mapping[str, int]
    """What `total` is made of. A learner's are not all there at once."""
    resting: int = 0
    """Of one process, what it keeps while others of its device work in turns with it."""
    mapped: int = 0
    """Of one process, what it has in common with others and the system counts for each: weights in the object store."""
    part: Part | None = None
    """Of a learner, the pass that it is counted with."""

    @property
    def resident(self) -> int:
        """Return the resident memory that the system says one process has."""
        return self.total + self.mapped
