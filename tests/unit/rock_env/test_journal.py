"""The journal lets each sequence number act once, whatever a client retries, skips or repeats."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from rock_env.env_workers.journal import Journal, check_observation
from rock_env.errors import (
    DeadlineExceeded,
    FailedPrecondition,
    InfraError,
    ResetDivergence,
    RockError,
    as_rock_error,
    plugin_call,
)
from rock_env.proto.v1 import env_pb2 as pb


class OneEnvironment(RuleBasedStateMachine):
    """Calls arrive in any order; an action happens exactly for each new sequence number."""

    def __init__(self) -> None:
        super().__init__()
        self.journal = Journal("e")
        self.actions: list[tuple[int, str]] = []

    def call(self, sequence: int, key: str) -> object:
        request = pb.StepRequest(sequence=sequence, idempotency_key=key)
        stored = self.journal.replay(request, tuple)
        if stored is not None:
            return stored
        self.actions.append((sequence, key))
        self.journal.commit(request, ("reply", sequence, key))
        return ("reply", sequence, key)

    @rule(key=st.sampled_from("abc"))
    def next_call(self, key: str) -> None:
        sequence = len(self.actions) + 1
        assert self.call(sequence, key) == ("reply", sequence, key)
        assert len(self.actions) == sequence

    @rule(key=st.sampled_from("abc"))
    def repeat(self, key: str) -> None:
        if not self.actions:
            return
        sequence, last = self.actions[-1]
        if key == last:
            assert self.call(sequence, key) == ("reply", sequence, last)
        else:
            with pytest.raises(FailedPrecondition, match="another idempotency key"):
                self.call(sequence, key)

    @rule(sequence=st.integers(0, 20), key=st.sampled_from("abc"))
    def out_of_order(self, sequence: int, key: str) -> None:
        if sequence in (len(self.actions), len(self.actions) + 1) and sequence > 0:
            return
        with pytest.raises(FailedPrecondition, match=f"got {sequence}, expected {len(self.actions) + 1}"):
            self.call(sequence, key)

    @invariant()
    def acted_once_each(self) -> None:
        assert [sequence for sequence, _ in self.actions] == list(range(1, len(self.actions) + 1))


TestOneEnvironment = OneEnvironment.TestCase


def test_a_reply_is_for_the_call_that_got_it() -> None:
    journal = Journal("e")
    request = pb.ResetRequest(sequence=1, idempotency_key="k")
    journal.commit(request, "the reply of a reset")
    assert journal.replay(request, str) == "the reply of a reset"
    with pytest.raises(FailedPrecondition, match="already used by another call, which answered with a str"):
        journal.replay(request, int)


@pytest.mark.parametrize(
    ("first", "other"),
    [
        (pb.StepRequest(action="right"), pb.StepRequest(action="down")),
        (pb.ResetRequest(task_id="train/0", seed=1), pb.ResetRequest(task_id="train/0", seed=2)),
        (pb.RestoreRequest(checkpoint_id="a"), pb.RestoreRequest(checkpoint_id="b")),
    ],
    ids=lambda message: type(message).__name__,
)
def test_a_retry_asks_for_the_same(first: Any, other: Any) -> None:
    journal = Journal("e")
    for request in (first, other):
        request.sequence, request.idempotency_key = 1, "k"
    journal.commit(first, "done")
    assert journal.replay(type(first).FromString(first.SerializeToString()), str) == "done"
    with pytest.raises(FailedPrecondition, match="already used by another request"):
        journal.replay(other, str)


def test_a_broken_environment_keeps_its_cause_until_settled() -> None:
    journal = Journal("e")
    with pytest.raises(FailedPrecondition, match="step before reset"):
        journal.need_step()
    journal.touch()
    assert journal.unsound
    journal.broke(DeadlineExceeded("too slow."))
    assert not journal.unsound
    for _ in range(2):  # the message does not grow
        with pytest.raises(
            DeadlineExceeded, match=r"^too slow\. Environment e is unusable until it is reset\.$"
        ):
            journal.need_step()
    journal.settle(done=False)
    journal.need_step()
    journal.settle(done=True)
    with pytest.raises(FailedPrecondition, match="after the end"):
        journal.need_step()
    journal.need_episode("evaluate")


def test_a_plugin_error_is_attributed() -> None:
    with pytest.raises(InfraError, match="step of x failed: KeyError: 'y'"), plugin_call("step of x"):
        raise KeyError("y")
    own = FailedPrecondition("mine")
    assert as_rock_error(own, doing="step") is own
    with pytest.raises(RockError, match=r"^mine$"), plugin_call("step of x"):
        raise own


def test_only_a_recorded_hash_is_compared() -> None:
    check_observation(1, recorded=b"", actual=b"x", env_id="e")
    check_observation(1, recorded=b"x", actual=b"x", env_id="e")
    with pytest.raises(ResetDivergence, match="turn 3"):
        check_observation(3, recorded=b"y", actual=b"x", env_id="e")
