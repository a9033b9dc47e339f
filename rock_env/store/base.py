"""What a store of sandbox records offers. Implemented by `rock_env/store/*`, called by the sandbox core alone.

A store remembers; it never decides what a sandbox may do (`rock_env.lifecycle` does) and knows no box.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from rock_env.lifecycle import SandboxRecord, SandboxState

__all__ = ["Query", "SandboxStore"]


@dataclass(frozen=True, slots=True)
class Query:
    """Which records to find; all conditions must hold."""

    tenant: str | None = None
    """None: any; for the server's own business."""
    states: frozenset[SandboxState] = frozenset(SandboxState)
    labels: Mapping[str, str] = field(default_factory=dict)
    environment: str = ""
    """Empty: any."""
    after_id: str = ""
    after_revision: int = 0
    """Only records that changed after this one."""
    limit: int | None = None


class SandboxStore(Protocol):
    """Records of sandboxes, each write one transaction: acknowledged means it survives a killed server.

    No method blocks the event loop. All raise `InfraError` when the store itself fails, such as on a full disk.
    """

    async def add(self, record: SandboxRecord) -> SandboxRecord:
        """Insert a new record and return it with its revision.

        Where another record of the tenant holds the same idempotency key, insert nothing and return that one.
        """
        ...

    async def save(self, record: SandboxRecord) -> SandboxRecord:
        """Replace the record and return it with its new revision.

        Raise `FailedPrecondition` if it was changed since the given one was read.
        """
        ...

    async def get(self, sandbox_id: str) -> SandboxRecord | None:
        """Return one record, or None if there is none (any more)."""
        ...

    async def find(self, query: Query) -> Sequence[SandboxRecord]:
        """Return the matching records by ascending id, or by ascending revision where `after_revision` is asked for."""
        ...

    async def revision(self) -> int:
        """Return the revision of the latest change of any record."""
        ...

    async def close(self) -> None:
        """Let go of the store. Safe to call twice."""
        ...
