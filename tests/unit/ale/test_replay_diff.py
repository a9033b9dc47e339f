"""What `ale replay diff` finds apart, and where it says that it begins."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from agent_runtime.store import read_segment, write_segment
from agent_runtime.types import RolloutFailure, Trajectory, VersionTokens
from ale.replay.comparing import diff_command, first_difference, settings_apart

RUN = Path(__file__).parents[1] / "kept" / "run"
ONE: Trajectory = next(iter(read_segment(next((RUN / "trajectories").glob("step-*.traj")))))


def with_turn(**fields: object) -> Trajectory:
    last = len(ONE.turns) - 1
    return replace(ONE, turns=(*ONE.turns[:last], replace(ONE.turns[last], **fields)))  # type: ignore[arg-type]


LAST = len(ONE.turns) - 1
MARKED = np.array(ONE.turns[LAST].logprobs)
MARKED[0] = np.nextafter(MARKED[0], np.float32(0))


@pytest.mark.parametrize(
    ("other", "where"),
    [
        (replace(ONE, seed=ONE.seed + 1), "seed"),
        (replace(ONE, first_observation="another"), "first_observation"),
        (with_turn(logprobs=MARKED), f"turn {LAST}: logprobs"),
        (with_turn(completion_ids=ONE.turns[LAST].completion_ids + 1), f"turn {LAST}: completion_ids"),
        (with_turn(policy_version=99), f"turn {LAST}: policy_version"),
        (
            with_turn(policy_version=(VersionTokens(1, 1), VersionTokens(2, 2))),
            f"turn {LAST}: policy_version",
        ),
        (replace(ONE, observations=("x", *ONE.observations[1:])), "turn 0: observation"),
        (replace(ONE, turn_rewards=(9.0, *ONE.turn_rewards[1:])), "turn 0: reward"),
        (replace(ONE, turns=ONE.turns[:-1]), "number of turns"),
        (replace(ONE, reward=ONE.reward + 1), "reward"),
        (ONE.as_failed(RolloutFailure("policy", "it broke", 0)), "reward"),
    ],
)
def test_the_first_difference_is_named_by_place(other: Trajectory, where: str) -> None:
    found = first_difference(ONE, other)
    assert found is not None
    assert found[0] == where


def test_times_are_no_difference_and_two_failures_are_equal() -> None:
    later = replace(with_turn(started_s=9.0, sampled_s=9.0, stepped_s=9.0), duration_s=9.0)
    assert first_difference(ONE, later) is None
    lost = ONE.as_failed(RolloutFailure("policy", "it broke", 0))
    assert first_difference(lost, replace(lost)) is None


def test_versions_of_a_turn_are_told_with_their_tokens() -> None:
    found = first_difference(ONE, with_turn(policy_version=(VersionTokens(1, 1), VersionTokens(2, 2))))
    assert found is not None
    assert found[2] == "1 (1 token) then 2 (2 tokens)"


def test_settings_are_apart_by_their_dotted_names() -> None:
    found = settings_apart({"a": {"b": 1, "c": 2}, "d": 3}, {"a": {"b": 1, "c": 4}, "e": {"f": 5}})
    assert list(found) == [("a.c", "2", "4"), ("d", "3", "not set"), ("e.f", "not set", "5")]


def test_a_run_differs_from_itself_in_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert diff_command(str(RUN), str(RUN), limit=5) == 0
    assert "0 differ, 0 are only in" in capsys.readouterr().out


def test_a_tampered_copy_is_told_by_file_id_and_turn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(RUN, copy)
    path = sorted((copy / "trajectories").glob("step-*.traj"))[0]
    first, second, *rest = read_segment(path)
    write_segment(path, [replace(first, observations=("x", *first.observations[1:])), *rest])
    config = copy / "config.toml"
    config.write_text(config.read_text().replace("seed = ", "seed = 1", 1))
    assert diff_command(str(RUN), str(copy), limit=5) == 1
    said = capsys.readouterr().out
    for words in (path.name, first.id, "turn 0: observation", f"1 differ, 1 are only in {RUN}", "seed"):
        assert words in said
    assert second.id not in said
