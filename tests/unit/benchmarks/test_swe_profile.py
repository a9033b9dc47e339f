"""What `benchmarks.swe_profile` reads from records."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

import pytest
from algo_reference import CONTEXT, trajectory

from agent_runtime.types import StopReason, Trajectory
from benchmarks.swe_profile import after_failing_tests, ending, flat_groups, prompts

FAILED, PASSED = "[exit code 1]\nF", "[exit code 0]\n."
EDITED, UNDONE = "Edited a.py: lines 1-1.", "Undone: a.py is as before that edit."


def episode(*turns: tuple[str, str], reward: float = 0.0, group: str = "g") -> Trajectory:
    made = trajectory("t", [1] * len(turns), reward, ids=count(CONTEXT + 1), group=group)
    actions, observations = zip(*turns, strict=True)
    return replace(made, actions=actions, observations=observations)


def test_only_what_follows_failing_tests_of_an_edit_that_stands_is_counted():
    played = episode(
        ("run_tests", FAILED),
        ("view a.py", "..."),
        ("edit a.py\n...", EDITED),
        ("run_tests", FAILED),
        ("undo", UNDONE),
        ("run_tests", FAILED),
        ("edit a.py\n...", "the old text has 2 matches"),
        ("run_tests", FAILED),
        ("edit a.py\n...", EDITED),
        ("run_tests", FAILED),
        ("what now", "not found"),
        ("run_tests", PASSED),
        ("submit", "Submitted."),
    )
    assert after_failing_tests([played]) == {"undo": 1, "text": 1}


@pytest.mark.parametrize(
    ("last", "reward", "stop", "expected"),
    [
        ("submit", 1.0, StopReason.TERMINATED, "passed"),
        ("submit", 0.0, StopReason.TERMINATED, "submitted failing work"),
        ("undo", 0.0, StopReason.CONTEXT_FULL, "context_full"),
    ],
)
def test_an_episode_ends_in_one_way(last, reward, stop, expected):
    assert ending(replace(episode((last, ""), reward=reward), stop_reason=stop)) == expected


def test_a_group_of_equal_outcomes_tells_nothing():
    rewards = {"a": (0.0, 0.0), "b": (1.0, 0.0), "c": (1.0, 1.0)}
    members = [
        episode(("submit", ""), reward=reward, group=group)
        for group, both in rewards.items()
        for reward in both
    ]
    assert flat_groups(members) == (2, 3)


def test_prompts_grow_by_what_was_shown_and_said():
    made = episode(("run_tests", FAILED), ("submit", ""))
    (first, said), (second, _) = prompts(made)
    assert second.tolist() == [*first, *said, *made.turns[1].context_ids]
