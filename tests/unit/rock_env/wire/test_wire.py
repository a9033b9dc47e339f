"""What goes into a message comes out of it, whole and in any pieces."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rock_env.env import StepResult
from rock_env.env_workers.frames import Frame, Kind, WorkerFrameReader, pack
from rock_env.errors import CODES, InvalidArgument, ResourceExhausted
from rock_env.proto.v1 import env_pb2 as pb
from rock_env.wire.channel import target
from rock_env.wire.envs import error_of, fill_error, step_response, step_result

scalars = (
    st.text()
    | st.integers(-(2**53), 2**53)
    | st.booleans()
    | st.floats(allow_nan=False, allow_infinity=False)
)
steps = st.builds(
    StepResult,
    observation=st.text(),
    reward=st.floats(allow_nan=False),
    terminated=st.booleans(),
    truncated=st.booleans(),
    info=st.dictionaries(st.text(), scalars),
)
frames = st.builds(
    Frame,
    call_id=st.integers(0, 2**32 - 1),
    kind=st.sampled_from(list(Kind)).map(int),
    items=st.integers(0, 2**32 - 1),
    timeout_s=st.floats(0, 1e6),
    payload=st.binary(max_size=200),
)


@given(steps)
def test_a_step_survives_the_wire(result: StepResult) -> None:
    reply = pb.StepResponse.FromString(step_response("e", result).SerializeToString())
    assert step_result(reply) == result
    assert error_of(reply) is None


@pytest.mark.parametrize("code", CODES)
def test_an_error_survives_the_wire(code: str) -> None:
    reply = fill_error(pb.StepResponse(env_id="e"), CODES[code]("why"))
    error = error_of(pb.StepResponse.FromString(reply.SerializeToString()))
    assert type(error) is CODES[code]
    assert (str(error), error.retry_after_s) == ("why", None)


def test_a_retry_hint_survives_the_wire() -> None:
    error = error_of(fill_error(pb.MakeResponse(), ResourceExhausted("full", retry_after_s=2.5)))
    assert error is not None
    assert error.retry_after_s == 2.5


@given(st.lists(frames, max_size=5), st.integers(1, 64))
def test_frames_survive_any_cutting_of_the_stream(sent: list[Frame], piece: int) -> None:
    stream = b"".join(map(pack, sent))
    reader = WorkerFrameReader()
    received = [
        f for start in range(0, len(stream), piece) for f in reader.feed(stream[start : start + piece])
    ]
    assert received == sent


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("unix:///tmp/s", "unix:/tmp/s"),
        ("unix:/tmp/s", "unix:/tmp/s"),
        ("unix:s", "unix:s"),
        ("localhost:80", "localhost:80"),
        ("grpc://10.0.0.1:8120", "10.0.0.1:8120"),
        ("[::1]:8120", "[::1]:8120"),
    ],
)
def test_addresses(address: str, expected: str) -> None:
    assert target(address) == expected


@pytest.mark.parametrize(
    "address", ["", "unix:", "unix://", "localhost", "localhost:", "localhost:x", "h:65536", "ftp://h:1"]
)
def test_bad_addresses_are_refused(address: str) -> None:
    with pytest.raises(InvalidArgument, match="expected unix"):
        target(address)
