"""The store: exact round trips, and one clear error for every damaged byte, cut, full disk and newer schema."""

from __future__ import annotations

import asyncio
import math
import os
import pickle
import resource
import signal
import struct
from contextlib import contextmanager
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from zlib import crc32

import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted_world import CharTemplate, MemoryRock, ScriptedSampler, a_request
from trajectory_logs import log_frame, stored_frame, write_log

from agent_runtime import frames
from agent_runtime.agents.chat_loop import run_rollout
from agent_runtime.errors import CorruptTrajectory, StoreError, StoreWriteFailed, UnknownSchema
from agent_runtime.store import (
    TrajectoryReader,
    decode,
    encode,
    index,
    kept_segment,
    read_encoded,
    read_segment,
    segment_path,
    trajectory_files,
    write_segment,
)
from agent_runtime.types import (
    AgentConfig,
    PrefixTurn,
    RolloutFailure,
    Start,
    StopReason,
    Trajectory,
    Turn,
)


def play(**params) -> Trajectory:
    request = a_request(params=params, agent=AgentConfig(max_turns=3))
    return asyncio.run(
        run_rollout(request, rock=MemoryRock(), sampler=ScriptedSampler(), template=CharTemplate())
    )


def assert_same(got, expected):
    """Equal in every field, type and bit."""
    assert type(got) is type(expected)
    if is_dataclass(expected):
        for field in fields(expected):
            assert_same(getattr(got, field.name), getattr(expected, field.name))
    elif isinstance(expected, tuple):
        assert len(got) == len(expected)
        for one, other in zip(got, expected, strict=True):
            assert_same(one, other)
    elif isinstance(expected, np.ndarray):
        assert got.dtype == expected.dtype
        assert got.tobytes() == expected.tobytes()
    elif isinstance(expected, float) and math.isnan(expected):
        assert math.isnan(got)
    else:
        assert got == expected


ids = st.lists(st.integers(-(2**31), 2**31 - 1), max_size=4).map(lambda v: np.array(v, np.int32))
floats = st.floats(allow_nan=True)
logprobs = st.lists(st.integers(0, 2**32 - 1), max_size=4).map(
    lambda v: np.array(v, np.uint32).view(np.float32)  # every bit pattern, all NaNs included
)
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
turns = st.builds(
    Turn,
    st.integers(0, 9),
    st.none() | st.integers(0, 9),
    ids,
    ids,
    logprobs,
    text,
    st.integers(-1, 2**40),
    floats,
)
starts = st.builds(
    Start,
    st.integers(0, 2**64 - 1),
    text,
    st.lists(st.builds(PrefixTurn, text, text), max_size=2).map(tuple),
    st.none() | st.integers(0, 2**64 - 1),
    text,
)


def of_earlier(found):
    """Return turns of which each continues an earlier one or none, as a reader demands."""
    parents = [None if turn.parent is None or not at else turn.parent % at for at, turn in enumerate(found)]
    return tuple(replace(turn, parent=parent) for turn, parent in zip(found, parents, strict=True))


BASE = play()
trajectories = st.builds(
    lambda **changes: replace(BASE, **changes),
    id=text,
    start=starts,
    turns=st.lists(turns, max_size=3).map(of_earlier),
    observations=st.lists(text, max_size=3).map(tuple),
    observation_hashes=st.lists(st.binary(max_size=8), max_size=3).map(tuple),
    reward=floats,
    stop_reason=st.sampled_from(StopReason),
    failure=st.none() | st.builds(RolloutFailure, text, text, st.integers(0, 9)),
)


def test_trajectories_cross_processes_in_the_form_in_which_they_are_stored(tmp_path):
    encoded = [encode(BASE), encode(replace(BASE, id="other"))]
    assert_same(decode(encoded[0]), BASE)
    write_segment(tmp_path / "encoded.rollouts", encoded)
    write_segment(tmp_path / "plain.rollouts", map(decode, encoded))
    assert (tmp_path / "encoded.rollouts").read_bytes() == (tmp_path / "plain.rollouts").read_bytes()
    assert list(read_encoded(tmp_path / "plain.rollouts")) == encoded
    with pytest.raises(CorruptTrajectory, match="memory"):
        decode(encoded[0][:-1])


@settings(max_examples=30)
@given(written=st.lists(trajectories, max_size=3))
def test_what_is_written_is_read_bit_for_bit(tmp_path_factory, written):
    folder = tmp_path_factory.mktemp("run")
    write_segment(folder / "a.rollouts", written)
    write_log(folder / "b.rollouts", written)
    for name in ("a.rollouts", "b.rollouts"):
        assert_same(tuple(TrajectoryReader(folder / name)), tuple(written))


SMALL = replace(
    BASE,
    first_observation="S",
    turns=(
        Turn(
            0, None, np.array([1, 2], np.int32), np.array([7], np.int32), np.zeros(1, np.float32), "stop", 4
        ),
    ),
    actions=("a",),
    observations=("o",),
    observation_hashes=(b"8 bytes!",),
    turn_rewards=(0.5,),
)


@pytest.fixture
def files(tmp_path) -> dict[str, Path]:
    """A segment and a log of two small trajectories each."""
    written = [SMALL, replace(SMALL, id="second", reward=0.25)]
    write_segment(tmp_path / "segment.rollouts", written)
    write_log(tmp_path / "log.rollouts", written)
    return {"segment": tmp_path / "segment.rollouts", "log": tmp_path / "log.rollouts"}


def overwrite(path: Path, data: bytes) -> None:
    """Make `data` the file's content in place: thousands of new files would wait for the disk."""
    with path.open("r+b") as file:
        file.write(data)
        file.truncate()


def read_until_error(path: Path) -> tuple[list[Trajectory], StoreError | None]:
    found: list[Trajectory] = []
    try:
        found.extend(read_segment(path))  # extend keeps what came before the error
    except StoreError as error:
        return found, error
    return found, None


@pytest.mark.parametrize("kind", ["segment", "log"])
@pytest.mark.parametrize("flip", [0x01, 0x80, 0xFF])
def test_a_flipped_byte_anywhere_is_an_error_that_names_file_and_place(files, kind, flip):
    path = files[kind]
    intact = path.read_bytes()
    originals = list(read_segment(path))
    for offset in range(len(intact)):
        overwrite(path, intact[:offset] + bytes([intact[offset] ^ flip]) + intact[offset + 1 :])
        found, error = read_until_error(path)
        assert isinstance(error, CorruptTrajectory), offset
        assert error.offset <= offset
        assert str(path) in str(error)
        assert len(found) < 3
        for got, expected in zip(found, originals, strict=False):
            assert frames.encode(got) == frames.encode(expected)


@pytest.mark.parametrize("kind", ["segment", "log"])
def test_a_cut_anywhere_is_an_error_except_between_a_logs_records(files, kind):
    path = files[kind]
    intact = path.read_bytes()
    originals = list(read_segment(path))
    with path.open("rb") as file:
        starts = [frame.offset for frame in frames.FrameFile(file, path).walk()]
    for length in range(len(intact)):
        overwrite(path, intact[:length])
        found, error = read_until_error(path)
        if kind == "log" and length in starts:
            assert error is None
            assert len(found) == starts.index(length)
        else:
            assert isinstance(error, CorruptTrajectory), length
        for got, expected in zip(found, originals, strict=False):
            assert frames.encode(got) == frames.encode(expected)


def test_a_byte_after_the_seal_is_an_error(files):
    with files["segment"].open("ab") as file:
        file.write(b"\0")
    _, error = read_until_error(files["segment"])
    assert "1 bytes follow" in str(error)


def test_a_newer_schema_is_named_with_the_remedy(files):
    path = files["segment"]
    header = struct.pack("<8sI", frames.SEGMENT_MAGIC, 9)
    path.write_bytes(header + struct.pack("<I", crc32(header)) + path.read_bytes()[16:])
    with pytest.raises(UnknownSchema, match="schema version 9, this ale reads 1 to 3") as caught:
        list(read_segment(path))
    assert caught.value.exit_code == 65


def test_a_record_of_other_types_is_refused(tmp_path):
    path = tmp_path / "x.rollouts"
    good = frames.encode(BASE)
    for old, new in ((b"max_turns", b"max_tarns"), (b"\xa4stop", b"\xc0"), (b"\xa6reward", b"\xa6rewarb")):
        assert old in good
        path.write_bytes(frames.file_header(frames.LOG_MAGIC) + log_frame(good.replace(old, new)))
        with pytest.raises(CorruptTrajectory, match="not a trajectory of schema 3"):
            list(read_segment(path))


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        (b"no Zstandard frame", "cannot be decompressed"),
        (zstandard.ZstdCompressor().compress(b"x" * 100)[:-3], "cannot be decompressed"),
        (zstandard.ZstdCompressor(write_content_size=False).compress(b"x" * 100), "of an unknown size"),
        (struct.pack("<IBQ", 0xFD2FB528, 0xE0, 1 << 40), "takes 1099511627776 bytes of memory"),
    ],
    ids=["plain", "cut", "unsized", "bomb"],
)
def test_a_record_that_is_no_bounded_compressed_one_is_refused(tmp_path, payload, said):
    path = tmp_path / "x.rollouts"
    path.write_bytes(frames.file_header(frames.LOG_MAGIC) + stored_frame(payload))
    with pytest.raises(CorruptTrajectory, match=said):
        list(read_segment(path))
    damaged = []
    assert list(TrajectoryReader(path, damaged=damaged)) == []
    assert [error.offset for error in damaged] == [frames.FILE_HEADER_BYTES]


def test_a_record_refers_to_the_dictionary_of_its_file_alone(tmp_path):
    several = [replace(SMALL, id=f"r{number}") for number in range(8)]
    write_segment(tmp_path / "a.rollouts", several)
    other = [replace(trajectory, env="another@1", task_id="x" * 50) for trajectory in several]
    write_segment(tmp_path / "b.rollouts", other)
    found = {name: list(read_segment(tmp_path / f"{name}.rollouts")) for name in "ab"}
    assert_same(tuple(found["a"]), tuple(several))
    assert_same(tuple(found["b"]), tuple(other))
    single = sum(len(log_frame(encode(trajectory))) for trajectory in several)
    assert (tmp_path / "a.rollouts").stat().st_size < single


def test_a_file_of_this_version_hides_the_earlier_ones_of_its_name(tmp_path):
    new = segment_path(tmp_path, "step", 1)
    assert kept_segment(tmp_path, "step", 1) == new
    old = new.with_suffix(".traj")
    write_segment(old, [SMALL])
    assert kept_segment(tmp_path, "step", 1) == old
    assert trajectory_files(old.parent) == [old]
    write_segment(new, [SMALL, SMALL])
    assert kept_segment(tmp_path, "step", 1) == new
    assert trajectory_files(old.parent) == [new]
    assert [info.trajectories for info in index(tmp_path)] == [2]


def test_arrays_of_other_types_cannot_be_written(tmp_path):
    spoiled = replace(BASE, turns=(replace(BASE.turns[0], logprobs=np.zeros(2)),))
    with pytest.raises(TypeError, match="int32 or float32"):
        write_segment(tmp_path / "x.rollouts", [spoiled])
    assert list(tmp_path.iterdir()) == []


@contextmanager
def file_size_limit(size: int):
    """A disk that is full after `size` bytes, as far as this process can tell."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    previous = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, previous)


def test_a_full_disk_leaves_the_older_segment_and_no_scraps(tmp_path):
    path = segment_path(tmp_path, "step", 3)
    write_segment(path, [BASE])
    before = path.read_bytes()
    with file_size_limit(len(before)), pytest.raises(StoreWriteFailed, match="Free space"):
        write_segment(path, [BASE] * 4)
    assert path.read_bytes() == before
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "trajectories").write_text("a file where the folder should be")
    with pytest.raises(StoreWriteFailed, match="Choose a run folder"):
        write_segment(segment_path(tmp_path, "step", 1), [BASE])


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(StoreError, match=r"cannot read the trajectory file .*none\.rollouts"):
        list(read_segment(tmp_path / "none.rollouts"))


def test_the_index_lists_a_run_and_names_what_is_damaged(tmp_path):
    for step in (12, 2):
        write_segment(segment_path(tmp_path, "step", step), [BASE] * step)
    write_segment(segment_path(tmp_path, "eval", 12), [BASE] * 5)
    write_segment(segment_path(tmp_path, "expert"), [])
    write_log(segment_path(tmp_path, "rollout"), [BASE])
    folder = tmp_path / "trajectories"
    (folder / ".step-000013.rollouts.tmp").write_bytes(b"left by a crash")
    (folder / "notes.txt").write_text("not ours")
    torn = segment_path(tmp_path, "step", 7)
    write_segment(torn, [BASE] * 3)
    torn.write_bytes(torn.read_bytes()[:-20])
    found = index(tmp_path)
    assert [(info.kind, info.step, info.trajectories) for info in found] == [
        ("expert", None, 0),
        ("rollout", None, 1),
        ("step", 2, 2),
        ("step", 7, 2),
        ("eval", 12, 5),
        ("step", 12, 12),
    ]
    assert [bool(info.problem) for info in found] == [False, False, False, True, False, False]
    assert str(torn) in found[3].problem
    assert all(info.size_bytes == info.path.stat().st_size for info in found)
    (tmp_path / "new").mkdir()
    assert index(tmp_path / "new") == []
    with pytest.raises(StoreError, match="no run folder"):
        index(tmp_path / "absent")


def test_errors_cross_process_borders():
    error = CorruptTrajectory("what", path=Path("x"), offset=7)
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), again.path, again.offset) == (CorruptTrajectory, "what", Path("x"), 7)
    full = pickle.loads(pickle.dumps(StoreWriteFailed("full", path=Path("y"))))
    assert isinstance(full, OSError)
    assert str(full) == "full"


def test_what_is_no_regular_file_is_never_replaced(tmp_path):
    """A rename onto a device node would remove the device, for everybody on the machine."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(StoreWriteFailed, match="no regular file"):
        write_segment(pipe, [])
    assert pipe.is_fifo()
