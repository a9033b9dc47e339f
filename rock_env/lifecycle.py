"""A sandbox's life as values: its states, the legal transitions, its deadlines, and the one record of it all.

Used by the sandbox core and the store. Pure: every function takes the time and returns a new record; nothing here
acts, waits or reads a clock. All times are seconds since the epoch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from rock_env.errors import FailedPrecondition
from rock_env.spec import SandboxSpec

__all__ = [
    "HISTORY_LIMIT",
    "SITE",
    "TRANSITIONS",
    "Deadline",
    "DeadlineKind",
    "SandboxRecord",
    "SandboxState",
    "StateChange",
    "born",
    "hard_deadline",
    "kept_busy",
    "next_deadline",
    "noted",
    "renewed",
    "transition",
]

HISTORY_LIMIT = 200
"""How many changes a record keeps: pausing and resuming for ever must not make it grow for ever."""
SITE = "@"
"""How the name of a site begins, which no id of a state folder does."""


class SandboxState(StrEnum):
    """Where a sandbox is in its life; the names are those of the wire."""

    PENDING = "PENDING"
    STARTING = "STARTING"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    DELETING = "DELETING"
    DELETED = "DELETED"
    FAILED = "FAILED"
    """The box is unusable; it may still hold resources until deleted."""


_S = SandboxState
TRANSITIONS: Mapping[SandboxState, frozenset[SandboxState]] = {
    _S.PENDING: frozenset({_S.STARTING, _S.DELETING, _S.FAILED}),
    _S.STARTING: frozenset({_S.RUNNING, _S.DELETING, _S.FAILED}),
    _S.RUNNING: frozenset({_S.PAUSED, _S.DELETING, _S.FAILED}),
    _S.PAUSED: frozenset({_S.RUNNING, _S.DELETING, _S.FAILED}),
    _S.FAILED: frozenset({_S.DELETING}),
    _S.DELETING: frozenset({_S.DELETED, _S.FAILED}),
    _S.DELETED: frozenset(),
}
"""The legal next states; every state but DELETED can reach it."""
_RENEWABLE = frozenset({_S.PENDING, _S.STARTING, _S.RUNNING, _S.PAUSED})


@dataclass(frozen=True, slots=True)
class StateChange:
    """One entry of a sandbox's history; `at` in seconds since the epoch."""

    state: SandboxState
    reason: str
    at: float


@dataclass(frozen=True, slots=True)
class SandboxToken:
    """What a sandbox's record keeps of a token."""

    secret_sha256: bytes
    port: int = 0
    """The one port that may be dialled with it, and nothing else; 0: all that can be done inside the box."""


@dataclass(frozen=True, slots=True)
class SandboxRecord:
    """The only record of a sandbox. Made by `born`; its state is changed by `transition` alone."""

    id: str
    spec: SandboxSpec
    backend: str
    created_at: float
    expires_at: float
    """The absolute deadline: creation plus `spec.lifetime_s`."""
    history: tuple[StateChange, ...]
    """Oldest first; the last entry is the present state. Only the newest `HISTORY_LIMIT` are kept."""
    tenant: str = ""
    environment: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    lease_expires_at: float | None = None
    """None: no lease was asked for, and the sandbox needs no renewing."""
    idle_timeout_s: float | None = None
    idle_expires_at: float | None = None
    """When to look whether the sandbox is idle; one that was used in the meantime gets a later date then."""
    idempotency_key: str = ""
    """The key of its Create, unique within the tenant; released (empty) if nothing was made."""
    request_digest: str = ""
    """Digest of its Create: another request under the same key is a mistake of the caller."""
    tokens: tuple[SandboxToken, ...] = ()
    """What may be used instead of an API token for this sandbox alone."""
    box_id: str = ""
    """The id its backend knows the box by: the sandbox's own, unless the box was made before anyone asked for it."""
    durable: bool = False
    """The box outlives its server, and the next one takes it up again."""
    snapshot_id: str = ""
    """The snapshot its file system builds upon: what it was started from or restored to, or its own latest one."""
    leaving_snapshot_id: str = ""
    """While it is being restored: the snapshot it built upon before, which is needed until that is done. Empty for one
    that built upon its image alone."""
    restoring: bool = False
    """It is being given the files of `snapshot_id`; whoever takes up its box does that again."""
    owner: str = ""
    """The server that holds its box, `NODE:SERVER`; `NODE:` for any server there, empty for one that shares nothing."""
    folder: str = ""
    """The id of the state folder its box is in, or the name of its site; empty for one of an earlier release, or of a server
    that shares nothing."""
    episode: bytes | None = None
    """Of an environment's box that could outlive its server: how another environment goes on there, as `server/envs/kept`
    writes it; empty: none could, so the box ends with its server. None for any other sandbox."""
    revision: int = 0
    """The store's number of the last change, 0 before it is stored; larger is later over all sandboxes."""

    @property
    def lasting(self) -> bool:
        """Return whether the box is to be taken up again when its server has ended."""
        return self.durable and self.episode != b""

    @property
    def state(self) -> SandboxState:
        """Return the present state."""
        return self.history[-1].state

    @property
    def reason(self) -> str:
        """Return why the sandbox is in its present state."""
        return self.history[-1].reason

    @property
    def node(self) -> str:
        """Return the node its owner is on; empty for a record of a server that shared its store with nobody."""
        return self.owner.rpartition(":")[0]

    @property
    def site(self) -> str:
        """Return where the box is, if every server that reaches this place can take it up, on whatever node; else ""."""
        return self.folder if self.folder.startswith(SITE) else ""


class DeadlineKind(StrEnum):
    """Which of a sandbox's deadlines; the values are the reasons in its history."""

    LEASE = "its lease expired"
    IDLE = "it was idle too long"
    LIFETIME = "its lifetime ended"


@dataclass(frozen=True, slots=True)
class Deadline:
    """When a sandbox ends unless something happens, and why."""

    at: float
    kind: DeadlineKind


def born(
    sandbox_id: str,
    spec: SandboxSpec,
    *,
    backend: str,
    at: float,
    lease_s: float | None = None,
    idle_timeout_s: float | None = None,
) -> SandboxRecord:
    """Return the record of a sandbox that was asked for just now, with its deadlines set."""
    return SandboxRecord(
        id=sandbox_id,
        spec=spec,
        backend=backend,
        created_at=at,
        expires_at=at + spec.lifetime_s,
        history=(StateChange(SandboxState.STARTING, "asked for", at),),
        box_id=sandbox_id,
        lease_expires_at=None if lease_s is None else at + lease_s,
        idle_timeout_s=idle_timeout_s,
        idle_expires_at=None if idle_timeout_s is None else at + idle_timeout_s,
    )


def transition(record: SandboxRecord, to: SandboxState, *, at: float, reason: str = "") -> SandboxRecord:
    """Return the record in its next state. Raise `FailedPrecondition` for an illegal transition."""
    legal = TRANSITIONS[record.state]
    if to not in legal:
        raise FailedPrecondition(
            f"sandbox {record.id!r} cannot go from {record.state} to {to}; legal: {', '.join(sorted(legal)) or 'none'}"
        )
    return _with(record, StateChange(to, reason, at))


def noted(record: SandboxRecord, *, at: float, reason: str) -> SandboxRecord:
    """Return the record in the same state as before, with what happened to it in its history."""
    return _with(record, StateChange(record.state, reason, at))


def _with(record: SandboxRecord, change: StateChange) -> SandboxRecord:
    return replace(record, history=(*record.history, change)[-HISTORY_LIMIT:])


def renewed(record: SandboxRecord, *, lease_s: float, at: float) -> SandboxRecord:
    """Return the record with a lease of `lease_s` from now. Raise `FailedPrecondition` if the box cannot be used."""
    if record.state not in _RENEWABLE:
        raise FailedPrecondition(
            f"sandbox {record.id!r} cannot be renewed: it is {record.state} ({record.reason}). Create another one."
        )
    return replace(record, lease_expires_at=at + lease_s)


def kept_busy(record: SandboxRecord, *, last_used_at: float) -> SandboxRecord:
    """Return the record with its idle deadline counted from `last_used_at`."""
    if record.idle_timeout_s is None:
        return record
    return replace(record, idle_expires_at=last_used_at + record.idle_timeout_s)


def next_deadline(record: SandboxRecord) -> Deadline:
    """Return the earliest deadline. Of two at once the more absolute one is named."""
    deadlines = [Deadline(record.expires_at, DeadlineKind.LIFETIME)]
    if record.lease_expires_at is not None:
        deadlines.append(Deadline(record.lease_expires_at, DeadlineKind.LEASE))
    if record.idle_expires_at is not None:
        deadlines.append(Deadline(record.idle_expires_at, DeadlineKind.IDLE))
    return min(deadlines, key=lambda deadline: deadline.at)


def hard_deadline(record: SandboxRecord) -> Deadline:
    """Return when its box ends also without a server: by its lease or lifetime. Who is idle only a server knows."""
    return next_deadline(replace(record, idle_expires_at=None))
