"""The record of a sandbox and its legal transitions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rock_env.errors import FailedPrecondition
from rock_env.proto.v1 import sandbox_pb2 as pb
from rock_env.sandbox_wire import info_message, sandbox_spec, sandbox_state, spec_message
from rock_env.spec import NetworkPolicy, Resources, SandboxSpec
from rock_env.state import TRANSITIONS, SandboxInfo, SandboxState, StateChange


def info(state: SandboxState) -> SandboxInfo:
    return SandboxInfo(
        id="sb-1", spec_digest="d", backend="process", history=(StateChange(state, "asked for", 1.5),)
    )


def test_every_state_but_deleted_can_reach_deleted() -> None:
    assert set(TRANSITIONS) == set(SandboxState)
    reaching = {SandboxState.DELETED}
    for _ in SandboxState:
        reaching |= {state for state, following in TRANSITIONS.items() if following & reaching}
    assert reaching == set(SandboxState)
    assert not TRANSITIONS[SandboxState.DELETED]


@given(st.sampled_from(SandboxState), st.lists(st.sampled_from(SandboxState), max_size=12))
def test_a_record_only_moves_legally_and_remembers(start: SandboxState, wishes: list[SandboxState]) -> None:
    record, expected = info(start), [start]
    for number, wish in enumerate(wishes):
        if wish in TRANSITIONS[record.state]:
            record = record.moved(wish, at=2.0 + number, reason=f"wish {number}")
            expected.append(wish)
            assert (record.state, record.reason) == (wish, f"wish {number}")
        else:
            with pytest.raises(FailedPrecondition, match=f"from {record.state} to {wish}"):
                record.moved(wish, at=0.0)
    assert [change.state for change in record.history] == expected
    assert record.created_at == 1.5


def test_the_wire_knows_the_same_states() -> None:
    numbers = [value for name, value in pb.SandboxState.items() if not name.endswith("UNSPECIFIED")]
    assert {sandbox_state(number) for number in numbers} == set(SandboxState)
    for state in SandboxState:
        assert sandbox_state(info_message(info(state)).state) is state


@given(
    st.builds(
        SandboxSpec,
        image=st.text(max_size=5),
        resources=st.builds(Resources, memory_bytes=st.integers(1, 2**63), pids=st.integers(1, 2**31)),
        network=st.builds(NetworkPolicy, st.booleans(), st.lists(st.text(max_size=3)).map(tuple)),
        env=st.dictionaries(st.text(max_size=3), st.text(max_size=3)).map(
            lambda env: tuple(sorted(env.items()))
        ),
        ports=st.lists(st.integers(1, 65535)).map(tuple),
        lifetime_s=st.integers(1, 10**6).map(float),
    )
)
def test_a_spec_survives_the_wire(spec: SandboxSpec) -> None:
    again = sandbox_spec(pb.SandboxSpec.FromString(spec_message(spec).SerializeToString()))
    assert again == spec
    assert again.digest == spec.digest


def test_an_empty_spec_means_the_defaults() -> None:
    assert sandbox_spec(pb.SandboxSpec()) == SandboxSpec()
