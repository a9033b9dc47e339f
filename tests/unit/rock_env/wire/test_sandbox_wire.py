"""Sandbox values and their messages."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import given
from hypothesis import strategies as st

from rock_env.client.sandbox.types import sandbox_info
from rock_env.errors import InvalidArgument
from rock_env.lifecycle import SandboxRecord, SandboxState, StateChange, born
from rock_env.proto.v1 import sandbox_pb2 as pb
from rock_env.spec import NetworkPolicy, Resources, SandboxSpec
from rock_env.task_spec import check_amounts
from rock_env.wire.sandboxes import (
    info_message,
    moment,
    sandbox_spec,
    sandbox_state,
    seconds,
    span,
    spec_message,
)


def record(state: SandboxState) -> SandboxRecord:
    made = born("sb-1", SandboxSpec(), backend="process", at=1.5)
    return replace(made, history=(StateChange(state, "asked for", 1.5),))


def test_the_wire_knows_the_same_states() -> None:
    numbers = [value for name, value in pb.SandboxState.items() if not name.endswith("UNSPECIFIED")]
    assert {sandbox_state(number) for number in numbers} == set(SandboxState)
    for state in SandboxState:
        assert sandbox_state(info_message(record(state)).state) is state


@given(
    st.builds(
        SandboxSpec,
        image=st.text(max_size=5),
        resources=st.builds(Resources, memory_bytes=st.integers(1, 2**50), pids=st.integers(1, 4_000_000)),
        network=st.builds(NetworkPolicy, st.booleans(), st.lists(st.text(max_size=3)).map(tuple)),
        env=st.dictionaries(
            st.text(st.characters(exclude_characters="\0=", codec="utf-8"), min_size=1, max_size=3),
            st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=3),
        ).map(lambda env: tuple(sorted(env.items()))),
        lifetime_s=st.integers(1, 10**6).map(float),
        ready=st.lists(
            st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=5), max_size=4
        ).map(tuple),
    )
)
def test_a_spec_survives_the_wire(spec: SandboxSpec) -> None:
    again = sandbox_spec(pb.SandboxSpec.FromString(spec_message(spec).SerializeToString()))
    assert again == spec
    assert again.digest == spec.digest


def test_a_spec_recorded_when_there_were_ports_is_read_with_its_digest() -> None:
    kept = msgspec.json.decode(b'{"image": "a", "env": [["A", "b"]], "ports": []}', type=SandboxSpec)
    assert kept == SandboxSpec(image="a", env=(("A", "b"),))
    assert kept.digest == "a8f1ea032037be82"


@pytest.mark.parametrize("words", [["x" * 4097], ["x"] * 65, ["a\0b"]])
def test_a_ready_command_is_bounded(words: list[str]) -> None:
    with pytest.raises(InvalidArgument, match=r"spec\.ready must be"):
        sandbox_spec(pb.SandboxSpec(ready=words))


@pytest.mark.parametrize("name", ["memory_bytes", "disk_bytes", "pids", "gpus"])
def test_a_spec_asks_for_what_a_machine_can_hold(name: str) -> None:
    field = pb.Resources.DESCRIPTOR.fields_by_name[name]
    most = 2**32 - 1 if field.type == field.TYPE_UINT32 else 2**63
    with pytest.raises(InvalidArgument, match=f"{name} must be from 0 to"):
        sandbox_spec(pb.SandboxSpec(resources=pb.Resources(**{name: most})))


@pytest.mark.parametrize("env", [{"": "x"}, {"A=B": "x"}, {"A\0": "x"}, {"A": "x\0"}])
def test_a_spec_has_variables_that_a_process_can_have(env: dict[str, str]) -> None:
    with pytest.raises(InvalidArgument, match="environment variable"):
        sandbox_spec(pb.SandboxSpec(env=env))


@pytest.mark.parametrize("lifetime_s", [0.0, -1.0, float("nan"), float("inf")])
def test_a_sandbox_has_an_end(lifetime_s: float) -> None:
    with pytest.raises(InvalidArgument, match="lifetime must be"):
        check_amounts(SandboxSpec(lifetime_s=lifetime_s))


@pytest.mark.parametrize(("whole", "nanos"), [(2, -1), (-2, 1), (1, 10**9), (0, 2**31 - 1), (5, -(2**31))])
def test_a_duration_is_one_of_protobufs(whole: int, nanos: int) -> None:
    with pytest.raises(InvalidArgument, match="nanoseconds, of the sign of its seconds"):
        span(Duration(seconds=whole, nanos=nanos), "lease")


def test_a_spec_without_a_ready_command_keeps_its_digest() -> None:
    assert SandboxSpec().digest == "462b572fe5153223"
    assert SandboxSpec(ready=("a", "b")).digest != SandboxSpec(ready=("a b",)).digest


@pytest.mark.parametrize("cpus", [-1.0, float("nan"), float("inf")])
def test_cpus_must_be_an_amount(cpus: float) -> None:
    with pytest.raises(InvalidArgument, match="cpus must be"):
        sandbox_spec(pb.SandboxSpec(resources=pb.Resources(cpus=cpus)))


def test_an_empty_spec_means_the_defaults() -> None:
    assert sandbox_spec(pb.SandboxSpec()) == SandboxSpec()


def test_a_record_is_told_in_full() -> None:
    made = replace(
        born(
            "sb-1",
            SandboxSpec("debian", lifetime_s=10),
            backend="process",
            at=1.5,
            lease_s=2,
            idle_timeout_s=3,
        ),
        tenant="team-a",
        environment="swe",
        labels={"run": "7"},
        revision=42,
    )
    message = info_message(made)
    assert (message.owner, message.environment, dict(message.labels)) == ("team-a", "swe", {"run": "7"})
    assert (message.revision, message.spec_digest, message.backend) == (42, made.spec.digest, "process")
    times = (message.created_at, message.lease_expires_at, message.idle_expires_at, message.expires_at)
    assert [time.ToNanoseconds() / 1e9 for time in times] == [1.5, 3.5, 4.5, 11.5]
    assert (message.image, sandbox_info(message).resources) == ("debian", made.spec.resources)
    message.ClearField("resources")
    assert sandbox_info(message).resources is None  # of a server that does not tell
    bare = info_message(record(SandboxState.RUNNING))
    assert not bare.HasField("lease_expires_at")
    assert not bare.HasField("idle_expires_at")


@pytest.mark.parametrize("wrong_s", [0, -5, 10**9, 10**11])
def test_a_duration_must_be_positive_and_finite(wrong_s: int) -> None:
    with pytest.raises(InvalidArgument, match="lease must be from"):
        seconds(Duration(seconds=wrong_s), "lease")
    assert seconds(Duration(seconds=1, nanos=500_000_000), "lease") == 1.5


@pytest.mark.parametrize(
    "wrong", [{"nanos": 2**31 - 1}, {"nanos": -1}, {"seconds": 2**62}, {"seconds": -(2**62)}]
)
def test_a_moment_must_be_a_time_of_the_calendar(wrong: dict[str, int]) -> None:
    with pytest.raises(InvalidArgument, match="registered_at must be a time of the years 1 to 9999"):
        moment(Timestamp(**wrong), "registered_at")
    assert moment(Timestamp(seconds=1, nanos=500_000_000), "registered_at") == 1.5


@pytest.mark.parametrize("number", [0, 99])
def test_a_state_must_be_one(number: int) -> None:
    with pytest.raises(InvalidArgument, match="is no state"):
        sandbox_state(number)
