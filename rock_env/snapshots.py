"""A snapshot of a sandbox's file system as a value: one node of the checkpoint tree, and who may still need it.

Used by the checkpoint tree of the server and by the store. Pure, as `rock_env.lifecycle` is. The bytes themselves are
a layer that a backend keeps under the same id.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from rock_env.spec import SandboxSpec

__all__ = ["SnapshotRecord", "SnapshotState", "Uses"]


class SnapshotState(StrEnum):
    """Where a snapshot is in its life; it only ever moves down this list."""

    MAKING = "MAKING"
    """Being made, for a Fork together with its sandboxes: nobody was told of it yet."""
    READY = "READY"
    DELETED = "DELETED"
    """Nobody wants it by name any more; the layer stays as long as a sandbox or another snapshot builds upon it."""
    COLLECTED = "COLLECTED"
    """Its layer is gone; the record is kept for a while, for its id and key."""


@dataclass(frozen=True, slots=True)
class SnapshotRecord:
    """The only record of a snapshot. Times in seconds since the epoch."""

    id: str
    backend: str
    spec: SandboxSpec
    """Of the sandbox it was made of; sandboxes started from it have it, too."""
    sandbox_id: str
    """The sandbox it was made of, which may be long gone."""
    created_at: float
    parent: str = ""
    """The snapshot that the sandbox built upon, empty for none: this layer needs that one."""
    tenant: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    state: SnapshotState = SnapshotState.MAKING
    bytes: int = 0
    """What this layer alone holds."""
    ephemeral: bool = False
    """Given up when its server ends: only what lives in that server's memory refers to it."""
    forked: tuple[str, ...] = ()
    """The sandboxes of the Fork that made it; their ids are chosen before anything is made."""
    idempotency_key: str = ""
    """The key of its Snapshot or Fork, unique within the tenant; released (empty) if nothing was made."""
    request_digest: str = ""
    """Digest of its request: another one under the same key is a mistake of the caller."""
    folder: str = ""
    """The id of the state folder its layer is in; empty for one of an earlier release, or where nothing is shared."""
    owner: str = ""
    """The `maker` of the server that is making it, or of one that has taken it over to end it; empty as `folder` is."""
    revision: int = 0
    """How often it was changed since it was added; a change is stored only over the revision that was read."""


@dataclass(frozen=True, slots=True)
class Uses:
    """What builds upon a snapshot's layer."""

    children: int
    """Snapshots made of sandboxes that built upon it, and not collected."""
    boxes: int
    """Sandboxes that are not deleted."""
