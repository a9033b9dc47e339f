"""What the sandbox client hands out: a sandbox's record, its output, files and snapshots, as frozen values.

Read by users of `client.sandboxes` and by the command line. All times are seconds since the epoch, all sizes bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rock_env.lifecycle import SandboxState, StateChange
from rock_env.proto.v1 import sandbox_pb2 as pb
from rock_env.snapshots import SnapshotState
from rock_env.spec import Resources
from rock_env.wire.fields import read

__all__ = [
    "FileInfo",
    "Progress",
    "SandboxInfo",
    "SnapshotInfo",
    "Tree",
    "file_info",
    "sandbox_info",
    "snapshot_info",
]

Progress = Callable[[int], None]
"""Called with the bytes transferred so far, at most once per message; must not block."""


@dataclass(frozen=True, slots=True)
class SandboxInfo:
    """A sandbox as the server knew it at `revision`."""

    id: str
    state: SandboxState
    reason: str
    """Why it is in this state."""
    backend: str
    environment: str
    """What it is for, as its Create said."""
    labels: Mapping[str, str]
    tenant: str
    spec_digest: str
    created_at: float
    expires_at: float
    """The absolute deadline."""
    lease_expires_at: float | None
    idle_expires_at: float | None
    history: tuple[StateChange, ...]
    """Oldest first; the last entry is the present state."""
    revision: int
    durable: bool
    """It lives on when its server is killed."""
    snapshot_id: str
    """The snapshot its file system builds upon, if any."""
    image: str = ""
    """What it is made of; empty for a process sandbox, and from a server that does not tell."""
    resources: Resources | None = None
    """None from a server that does not tell."""


@dataclass(frozen=True, slots=True)
class FileInfo:
    """One file of a sandbox; `path` as asked for, or relative to the listed folder."""

    path: str
    size: int
    mode: int
    """Permission bits."""
    modified_at: float
    directory: bool
    symlink_target: str
    """Empty for what is no symbolic link."""


@dataclass(frozen=True, slots=True)
class Tree:
    """What was transferred."""

    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class SnapshotInfo:
    """A sandbox's file system at one moment, and its place in the tree; the memory of processes is not in it."""

    id: str
    parent: str
    """The snapshot it builds upon, or empty."""
    sandbox_id: str
    """Of which it was made."""
    state: SnapshotState
    backend: str
    labels: Mapping[str, str]
    created_at: float
    bytes: int
    """What its own layer holds."""
    children: int
    """Snapshots that build upon it."""
    boxes: int
    """Sandboxes that do."""


def _time(message: Any, field: str) -> float | None:
    return getattr(message, field).ToNanoseconds() / 1e9 if message.HasField(field) else None


def _state(number: int) -> SandboxState:
    return SandboxState(pb.SandboxState.Name(number).removeprefix("SANDBOX_STATE_"))


def sandbox_info(message: pb.SandboxInfo) -> SandboxInfo:
    """Read a sandbox's record."""
    return read(
        message,
        SandboxInfo,
        state=_state(message.state),
        tenant=message.owner,
        lease_expires_at=_time(message, "lease_expires_at"),
        idle_expires_at=_time(message, "idle_expires_at"),
        history=tuple(
            StateChange(_state(change.state), change.reason, change.at.ToNanoseconds() / 1e9)
            for change in message.history
        ),
        resources=read(message.resources, Resources) if message.HasField("resources") else None,
    )


def snapshot_info(message: pb.SnapshotInfo) -> SnapshotInfo:
    """Read a snapshot's record."""
    state = SnapshotState(pb.SnapshotState.Name(message.state).removeprefix("SNAPSHOT_STATE_"))
    return read(message, SnapshotInfo, state=state)


def file_info(message: pb.FileStat) -> FileInfo:
    """Read a file's description."""
    return read(message, FileInfo)
