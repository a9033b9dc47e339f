"""What is known about a sandbox: its state, how it may change, and the one record of it.

Used by the SandboxService and, later, the store and the reaper. Values only; nothing here acts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from rock_env.errors import FailedPrecondition

__all__ = ["TRANSITIONS", "SandboxInfo", "SandboxState", "StateChange"]


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


@dataclass(frozen=True, slots=True)
class StateChange:
    """One entry of a sandbox's history; `at` in seconds since the epoch."""

    state: SandboxState
    reason: str
    at: float


@dataclass(frozen=True, slots=True)
class SandboxInfo:
    """The only record of a sandbox. Changed by `moved` alone, so its history is complete."""

    id: str
    spec_digest: str
    backend: str
    history: tuple[StateChange, ...]
    """Oldest first; the last entry is the present state."""
    owner: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    endpoints: Mapping[str, str] = field(default_factory=dict)
    lease_expires_at: float | None = None

    @property
    def state(self) -> SandboxState:
        """Return the present state."""
        return self.history[-1].state

    @property
    def reason(self) -> str:
        """Return why the sandbox is in its present state."""
        return self.history[-1].reason

    @property
    def created_at(self) -> float:
        """Return when the sandbox was asked for."""
        return self.history[0].at

    def moved(self, to: SandboxState, *, at: float, reason: str = "") -> SandboxInfo:
        """Return the record in its next state. Raise `FailedPrecondition` for an illegal transition."""
        legal = TRANSITIONS[self.state]
        if to not in legal:
            raise FailedPrecondition(
                f"sandbox {self.id!r} cannot go from {self.state} to {to}; legal: {', '.join(sorted(legal)) or 'none'}"
            )
        return replace(self, history=(*self.history, StateChange(to, reason, at)))
