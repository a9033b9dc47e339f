"""What a store of sandbox records offers. Implemented by `rock_env/store/*`, called by the sandbox core alone.

A store remembers; it never decides what a sandbox may do (`rock_env.lifecycle` does) and knows no box.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, Self

from rock_env.errors import FailedPrecondition, RockError
from rock_env.lifecycle import SandboxRecord, SandboxState
from rock_env.snapshots import SnapshotRecord, SnapshotState, Uses

__all__ = [
    "FOLDER_ID",
    "KEPT_DELETED",
    "Overtaken",
    "Query",
    "SandboxStore",
    "SnapshotQuery",
    "other_folder",
    "overtaken",
    "overtaken_snapshot",
]

FOLDER_ID = "folder-id"
"""The file of a state folder that holds its id."""
KEPT_DELETED = 1000
"""How many deleted sandboxes, and collected snapshots, are still known by id and idempotency key."""


class Overtaken(FailedPrecondition):
    """A record is no longer as it was read: somebody else was faster, and nothing was stored."""


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


@dataclass(frozen=True, slots=True)
class SnapshotQuery:
    """Which snapshots to find; all conditions must hold."""

    tenant: str | None = None
    """None: any; for the server's own business."""
    states: frozenset[SnapshotState] = frozenset(SnapshotState)
    sandbox_id: str = ""
    """Empty: of any sandbox."""
    labels: Mapping[str, str] = field(default_factory=dict)
    idempotency_key: str = ""
    """Empty: whatever key it has, or none."""
    after_id: str = ""
    limit: int | None = None


class SandboxStore(Protocol):
    """Records of sandboxes and snapshots, each write one transaction: acknowledged means it survives a killed server.

    A record is changed by `save` and `save_snapshot` alone, which compare before they set: a record carries the
    revision at which it was read, and whoever changed it since has won. So there is no write that does not know what
    it replaces. The outcome of a change is always known to a server that lives: a change that may have been stored is
    asked for again until the database has answered.

    No method blocks the event loop. All raise `InfraError` when the store itself fails, such as on a full disk. Reads
    and `add` raise `Unavailable`, nothing stored, while the database is away; changes wait for it (`when_away`).
    """

    async def add(self, record: SandboxRecord) -> SandboxRecord:
        """Insert a new record and return it with its revision.

        Where another record of the tenant holds the same idempotency key, insert nothing and return that one.
        Raise `NotFound` if it is to start from a snapshot that was deleted.
        """
        ...

    async def save(self, record: SandboxRecord) -> SandboxRecord:
        """Replace the record and return it with its new revision.

        Raise `Overtaken` if it was changed since the given one was read, and `NotFound` if a record that is not
        deleted builds upon a snapshot that was collected.
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

    async def add_snapshot(self, record: SnapshotRecord) -> SnapshotRecord:
        """Insert a new snapshot and return it.

        Where another snapshot of the tenant holds the same idempotency key, insert nothing and return that one.
        Raise `NotFound` if its parent was collected.
        """
        ...

    async def save_snapshot(self, record: SnapshotRecord) -> SnapshotRecord:
        """Replace a snapshot's record and return it with its new revision; one that is stored already is returned.

        Raise `Overtaken` if it was changed since the given one was read, or its state would go back.
        """
        ...

    async def get_snapshot(self, snapshot_id: str) -> SnapshotRecord | None:
        """Return one snapshot, or None if there is none (any more)."""
        ...

    async def find_snapshots(self, query: SnapshotQuery) -> Sequence[SnapshotRecord]:
        """Return the matching snapshots by ascending id."""
        ...

    async def count_snapshots(self, tenant: str) -> int:
        """Count a tenant's snapshots that have a layer: all but those that are COLLECTED."""
        ...

    async def uses(self, snapshot_ids: Sequence[str]) -> Mapping[str, Uses]:
        """Count what builds upon each of these snapshots."""
        ...

    async def collect(self, snapshot_id: str) -> Sequence[SnapshotRecord]:
        """Make a DELETED snapshot that nothing builds upon COLLECTED, then likewise its parent and so on.

        One transaction: nothing can begin to build upon them meanwhile. Return those that became COLLECTED,
        children first; their layers are the caller's to remove.
        """
        ...

    def when_away(self, tell: Callable[[RockError | None], None]) -> None:
        """Have `tell` called, again and again, while a change waits for the database longer than a caller should.

        It is told why, and None once the database is back.
        """
        ...

    async def __aenter__(self) -> Self:
        """Close the store at the end of the block."""
        ...

    async def __aexit__(self, *_: object) -> None: ...

    async def close(self) -> None:
        """Let go of the store. Safe to call twice."""
        ...


def overtaken(record: SandboxRecord) -> Overtaken:
    """Return the error for a change of a sandbox that is not as it was read."""
    return Overtaken(
        f"sandbox {record.id!r} was changed by someone else since revision {record.revision}. Read it again."
    )


def overtaken_snapshot(record: SnapshotRecord, now: SnapshotRecord | None) -> Overtaken:
    """Return the error for a change of a snapshot that is `now` something else than what was read."""
    state = "forgotten" if now is None else f"{now.state} at revision {now.revision}"
    return Overtaken(
        f"snapshot {record.id!r} is {state} by now and cannot become {record.state}: it was read at revision "
        f"{record.revision}. Read it again."
    )


def other_folder(
    node: str, *, got: str, expected: str, because: str, instead: str = "--node"
) -> FailedPrecondition:
    """Return the error for a server that names a node and is not in the node's state folder."""
    return FailedPrecondition(
        f"node {node!r} is registered in this store with another state folder, and {because}. Got a --state of id "
        f"{got or 'none'!r}, expected {expected!r} (see its file {FOLDER_ID}). Nothing was changed. Start this server "
        f"with that --state, or with a {instead} of its own; or end what is there first."
    )
