"""How a model says what memory the processes of a run take: one role for each kind of process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["HOST", "STORE", "Role"]

STORE = "store"
HOST = "host"
"""The memory beside every device."""


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

    @property
    def resident(self) -> int:
        """Return the resident memory that the system says one process has."""
        return self.total + self.mapped
