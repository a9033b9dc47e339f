"""`ale replay score`: a wrong reward on record is found, and the right one is kept elsewhere."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from command_line import ale, lines_of

from agent_runtime.store import read_segment, segment_path, write_segment
from agent_runtime.types import RolloutFailure


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    done = ale("rollout", "--env", "frozen_lake", "--episodes", "4", "--out", "kept", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    return segment_path(tmp_path / "kept", "rollout")


def test_wrong_rewards_are_found_and_right_ones_kept_elsewhere(recorded: Path, tmp_path: Path) -> None:
    one, two, three, four = read_segment(recorded)
    wrong = replace(one, reward=1.0 - one.reward, passed=not one.passed)
    ungraded = two.as_failed(RolloutFailure("infra", "no grade", len(two.turns)))
    elsewhere = replace(three, observation_hashes=(b"x" * 8, *three.observation_hashes[1:]))
    recorded.unlink()
    write_segment(recorded, [wrong, ungraded, elsewhere, four])
    done = ale("replay", "score", "kept", "--out", "again", cwd=tmp_path)
    assert done.returncode == 1
    assert "3 of 4 graded; 3 have another reward or none" in done.stdout
    assert "goes another way at turn 0: observation" in done.stdout
    assert len(lines_of(done.stderr)) == 1
    found = list(read_segment(segment_path(tmp_path / "again", "scored")))
    assert [(each.id, each.reward, each.passed) for each in found] == [
        (each.id, each.reward, each.passed) for each in (one, two, four)
    ]
    assert ale("replay", "score", "again", cwd=tmp_path).returncode == 0
    assert (
        ale("replay", "score", "kept", "--out", "again", cwd=tmp_path).returncode != 0
    )  # never written again


def test_only_those_whose_grader_failed(recorded: Path, tmp_path: Path) -> None:
    one, *others = read_segment(recorded)
    former = ale("replay", "score", "kept", "--failed", cwd=tmp_path)
    assert (former.returncode, "--ungraded" in former.stderr, len(lines_of(former.stderr))) == (2, True, 1)
    none = ale("replay", "score", "kept", "--ungraded", cwd=tmp_path)
    assert (none.returncode, "nothing to grade" in none.stderr) == (65, True)
    recorded.unlink()
    write_segment(recorded, [one.as_failed(RolloutFailure("infra", "no grade", len(one.turns))), *others])
    done = ale("replay", "score", "kept", "--ungraded", cwd=tmp_path)
    assert "1 of 1 graded; 1 have another reward or none" in done.stdout
