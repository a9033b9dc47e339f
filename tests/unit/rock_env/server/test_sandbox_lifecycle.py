"""A sandbox's life as a state machine: whatever is asked of a record in whatever order, it stays legal and complete."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from rock_env.errors import FailedPrecondition
from rock_env.lifecycle import (
    HISTORY_LIMIT,
    TRANSITIONS,
    Deadline,
    DeadlineKind,
    SandboxRecord,
    SandboxState,
    StateChange,
    born,
    kept_busy,
    next_deadline,
    renewed,
    transition,
)
from rock_env.spec import SandboxSpec

SECONDS = st.floats(0.001, 1e7)
USABLE = {SandboxState.STARTING, SandboxState.RUNNING, SandboxState.PAUSED}


def test_every_state_but_deleted_can_reach_deleted() -> None:
    assert set(TRANSITIONS) == set(SandboxState)
    reaching = {SandboxState.DELETED}
    for _ in SandboxState:
        reaching |= {state for state, following in TRANSITIONS.items() if following & reaching}
    assert reaching == set(SandboxState)
    assert not TRANSITIONS[SandboxState.DELETED]


def test_a_sandbox_that_stopped_running_never_runs_again() -> None:
    over = {SandboxState.FAILED, SandboxState.DELETING, SandboxState.DELETED}
    for state in over:
        assert TRANSITIONS[state] <= over


class Life(RuleBasedStateMachine):
    """The record beside a model of it: a list of changes and three deadlines."""

    @initialize(lifetime_s=SECONDS, lease_s=st.none() | SECONDS, idle_s=st.none() | SECONDS)
    def create(self, lifetime_s: float, lease_s: float | None, idle_s: float | None) -> None:
        self.now = 1.5
        spec = SandboxSpec(lifetime_s=lifetime_s)
        self.record = born(
            "sb-1", spec, backend="process", at=self.now, lease_s=lease_s, idle_timeout_s=idle_s
        )
        self.history = [StateChange(SandboxState.STARTING, "asked for", self.now)]
        self.deadlines = {DeadlineKind.LIFETIME: self.now + lifetime_s}
        if lease_s is not None:
            self.deadlines[DeadlineKind.LEASE] = self.now + lease_s
        if idle_s is not None:
            self.deadlines[DeadlineKind.IDLE] = self.now + idle_s

    @rule(seconds=SECONDS)
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule(to=st.sampled_from(SandboxState), reason=st.text(max_size=5))
    def move(self, to: SandboxState, reason: str) -> None:
        before = self.record
        if to in TRANSITIONS[before.state]:
            self.record = transition(before, to, at=self.now, reason=reason)
            self.history.append(StateChange(to, reason, self.now))
        else:
            with pytest.raises(FailedPrecondition, match=f"from {before.state} to {to}; legal: "):
                transition(before, to, at=self.now, reason=reason)

    @precondition(lambda self: self.record.state in USABLE)
    @rule(lease_s=SECONDS)
    def renew(self, lease_s: float) -> None:
        self.record = renewed(self.record, lease_s=lease_s, at=self.now)
        self.deadlines[DeadlineKind.LEASE] = self.now + lease_s

    @precondition(lambda self: self.record.state not in USABLE)
    @rule(lease_s=SECONDS)
    def renew_too_late(self, lease_s: float) -> None:
        with pytest.raises(FailedPrecondition, match=f"it is {self.record.state}"):
            renewed(self.record, lease_s=lease_s, at=self.now)

    @rule()
    def use(self) -> None:
        self.record = kept_busy(self.record, last_used_at=self.now)
        if DeadlineKind.IDLE in self.deadlines:
            assert self.record.idle_timeout_s is not None
            self.deadlines[DeadlineKind.IDLE] = self.now + self.record.idle_timeout_s

    @invariant()
    def the_history_is_complete(self) -> None:
        assert self.record.history == tuple(self.history[-HISTORY_LIMIT:])
        assert (self.record.state, self.record.reason) == (self.history[-1].state, self.history[-1].reason)
        assert self.record.created_at == self.history[0].at

    @invariant()
    def the_earliest_deadline_is_next(self) -> None:
        deadline = next_deadline(self.record)
        assert deadline.at == min(self.deadlines.values())
        assert deadline.at == self.deadlines[deadline.kind]


TestLife = Life.TestCase
TestLife.settings = settings(max_examples=50)


def test_a_long_life_keeps_its_newest_changes() -> None:
    record: SandboxRecord = born("sb-1", SandboxSpec(), backend="process", at=0.0)
    record = transition(record, SandboxState.RUNNING, at=0.0)
    for number in range(HISTORY_LIMIT):
        record = transition(record, SandboxState.PAUSED, at=number)
        record = transition(record, SandboxState.RUNNING, at=number)
    assert len(record.history) == HISTORY_LIMIT
    assert record.history[-1].at == HISTORY_LIMIT - 1
    assert record.created_at == 0.0


def test_of_two_deadlines_at_once_the_lifetime_is_named() -> None:
    record = born("sb-1", SandboxSpec(lifetime_s=5), backend="process", at=1.0, lease_s=5, idle_timeout_s=5)
    assert next_deadline(record) == Deadline(6.0, DeadlineKind.LIFETIME)
