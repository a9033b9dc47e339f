"""What is read of a damaged trajectory file where damage is passed over: every record that is intact, and nothing else."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
from test_trajectory_store import SMALL, overwrite
from trajectory_logs import write_log

from agent_runtime import frames
from agent_runtime.errors import CorruptTrajectory, StoreError
from agent_runtime.store import TrajectoryReader, read_at, write_segment

WRITTEN = [replace(SMALL, id=f"r{number}", reward=number / 8) for number in range(5)]
ENCODED = [frames.encode(trajectory) for trajectory in WRITTEN]


@pytest.fixture(params=["segment", "log"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    made = tmp_path / f"{request.param}.rollouts"
    if request.param == "segment":
        write_segment(made, WRITTEN)  # enough records for a dictionary
    else:
        write_log(made, WRITTEN)
    return made


def spans(path: Path) -> list[tuple[int, int]]:
    """Return where each record begins and ends."""
    with path.open("rb") as file:
        return [(frame.offset, frame.end) for frame in frames.FrameFile(file, path).walk()]


def salvaged(path: Path) -> tuple[list[bytes], list[CorruptTrajectory]]:
    damaged: list[CorruptTrajectory] = []
    return [frames.encode(found) for found in TrajectoryReader(path, damaged=damaged)], damaged


def test_an_intact_file_has_no_damage(path: Path) -> None:
    assert salvaged(path) == (ENCODED, [])


def test_a_flipped_byte_costs_its_own_record_and_is_told(path: Path) -> None:
    intact, places = path.read_bytes(), spans(path)
    for offset in range(frames.FILE_HEADER_BYTES, len(intact)):
        overwrite(path, intact[:offset] + bytes([intact[offset] ^ 0x10]) + intact[offset + 1 :])
        found, damaged = salvaged(path)
        assert len(damaged) == 1, offset
        assert str(path) in str(damaged[0])
        assert damaged[0].offset <= offset
        lost = [encoded for encoded in ENCODED if encoded not in found]
        hit = [ENCODED[number] for number, (start, end) in enumerate(places) if start <= offset < end]
        assert lost == hit, offset
        assert found == [encoded for encoded in ENCODED if encoded not in lost]


def test_both_copies_of_the_dictionary_are_used(tmp_path: Path) -> None:
    path = tmp_path / "segment.rollouts"
    write_segment(path, WRITTEN)
    intact, places = path.read_bytes(), spans(path)
    first, last = places[0][0] - 5, places[-1][1] + 20
    for at in (first, last):
        overwrite(path, intact[:at] + bytes([intact[at] ^ 1]) + intact[at + 1 :])
        found, damaged = salvaged(path)
        assert found == ENCODED
        assert len(damaged) == 1
        assert frames.encode(read_at(path, places[3][0])) == ENCODED[3]
    data = bytearray(intact)
    data[first] ^= 1
    data[last] ^= 1
    overwrite(path, bytes(data))
    found, damaged = salvaged(path)
    assert all(encoded in ENCODED for encoded in found)
    assert len(found) + len(damaged) == len(WRITTEN) + 2


def test_a_file_that_is_cut_keeps_what_lies_before_and_says_so(path: Path) -> None:
    intact, places = path.read_bytes(), spans(path)
    ends = [places[0][0], *(end for _, end in places)]
    for size in range(frames.FILE_HEADER_BYTES, len(intact)):
        overwrite(path, intact[:size])
        found, damaged = salvaged(path)
        assert found == ENCODED[: max(0, sum(end <= size for end in ends) - 1)], size
        whole = size in ends and path.name == "log.rollouts"
        assert bool(damaged) != whole, size


def test_ten_thousand_random_mutations_yield_only_what_was_written(path: Path) -> None:
    intact, rng = path.read_bytes(), random.Random(7)
    for _ in range(5000):
        data = bytearray(intact)
        for _ in range(rng.randrange(1, 4)):
            at, width = rng.randrange(len(data)), rng.randrange(1, 200)
            match rng.randrange(4):
                case 0:
                    data[at] ^= 1 << rng.randrange(8)
                case 1:
                    del data[at : at + width]
                case 2:
                    data[at:at] = rng.randbytes(width)
                case _:
                    data[at:at] = data[at : at + width]
        overwrite(path, bytes(data))
        try:
            found, _ = salvaged(path)
        except StoreError:
            continue  # the file's own header
        assert set(found) <= set(ENCODED)
