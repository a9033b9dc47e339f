"""What the rules of `ale replay scan` find, what they leave alone, and rules of others."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from agent_runtime.store import read_segment, write_segment
from agent_runtime.types import Trajectory
from ale.replay.scanning import Match, find_grader_attacks, find_loops, find_refusals, scan_command
from rock_env.errors import InvalidArgument, UnknownName
from rock_env.plugins import given, names

RUN = Path(__file__).parents[1] / "kept" / "run"
ONE: Trajectory = next(iter(read_segment(next((RUN / "trajectories").glob("step-*.traj")))))


def played(*moves: tuple[str, str], name: str = "one") -> Trajectory:
    """Return a rollout of these (action, observation)."""
    turns = tuple(replace(ONE.turns[0], index=turn, parent=None) for turn in range(len(moves)))
    return replace(
        ONE,
        id=name,
        turns=turns,
        actions=tuple(action for action, _ in moves),
        observations=tuple(seen for _, seen in moves),
        observation_hashes=(b"12345678",) * len(moves),
        turn_rewards=(0.0,) * len(moves),
        turn_faults=(),
        turn_labels=(),
        internal_turns=(),
    )


def test_a_loop_is_three_equal_actions_that_change_nothing() -> None:
    assert [found.turn for found in find_loops(played(*[("ls", "a")] * 5, ("cat", "b")))] == [2]
    for moves in (
        [("ls", "a"), ("ls", "b"), ("ls", "c")],
        [("ls", "a"), ("cat", "a")] * 3,
        [("ls", "a")] * 2,
    ):
        assert not list(find_loops(played(*moves)))


@pytest.mark.parametrize(
    "said", ["I'm sorry, but no.", "I cannot help with that", "As an AI, I do not", "I won't do this"]
)
def test_a_refusal_is_found_by_its_words(said: str) -> None:
    assert [found.turn for found in find_refusals(played(("ls", ""), (said, "")))] == [1]


@pytest.mark.parametrize("said", ["I help myself", "sorry.py", "cannot open file", "I can do this"])
def test_other_words_are_no_refusal(said: str) -> None:
    assert not list(find_refusals(played((said, ""))))


@pytest.mark.parametrize(
    "said",
    [
        "echo x > conftest.py",
        "cat > tests/conftest.py <<EOF",
        "echo 1 > /logs/verifier/reward.txt",
        "echo evil.so > /etc/ld.so.preload",
        "def pytest_runtest_call(item): pass",
        "cp a.pth /usr/lib/python3/site-packages/a.pth",
        "import os; os._exit(0)",
        "Result.__eq__ = lambda *_: True",
    ],
)
def test_what_touches_the_grader_is_found(said: str) -> None:
    assert [found.turn for found in find_grader_attacks(played((said, "")))] == [0]


def test_a_long_hostile_action_is_read_in_linear_time() -> None:
    """Quadratic patterns would take minutes here, and the test's time would be up."""
    for text in ("site-packages/" * 200_000, "I " * 500_000, "pytest_runtest_" * 100_000):
        for rule in (find_grader_attacks, find_refusals):
            list(rule(played((text, ""))))


def test_honest_work_is_left_alone() -> None:
    for said in ("pytest -q", "python -m unittest", "sed -i s/a/b/ src/reward.py", "left", "git diff"):
        assert not list(find_grader_attacks(played((said, ""))))


@pytest.fixture
def records(tmp_path: Path) -> str:
    path = tmp_path / "step-000001.rollouts"
    good = replace(played(*[("ls", "a")] * 3, name="loop"), passed=True, reward=1.0)
    write_segment(
        path, [good, played(("echo > conftest.py", ""), name="attack"), played(("ls", "x"), name="none")]
    )
    return str(path)


def test_a_scan_counts_by_rule_and_says_how_many_passed(
    records: str, capsys: pytest.CaptureFixture[str]
) -> None:
    scan_command(records, rules=(), limit=5, as_json=True)
    found = json.loads(capsys.readouterr().out)
    assert found["trajectories"] == 3
    assert set(found["rules"]) == set(names("ale.scans")) == {"grader_attacks", "loops", "refusals"}
    assert (found["rules"]["loops"]["rollouts"], found["rules"]["loops"]["passed"]) == (1, 1)
    assert found["rules"]["grader_attacks"]["first"][0][:2] == ["attack", 0]
    assert found["rules"]["refusals"]["rollouts"] == 0
    scan_command(records, rules=["loops"], limit=5, as_json=False)
    said = capsys.readouterr().out
    assert "3 times in a row: ls" in said
    assert "attack" not in said


def test_rules_of_others_run_and_their_failures_are_named(
    records: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def short(trajectory: Trajectory) -> Iterator[Match]:
        if len(trajectory.turns) == 1:
            yield Match(0, "one turn")

    def broken(trajectory: Trajectory) -> Iterator[Match]:
        raise KeyError("missing")

    with given({("ale.scans", "short"): short, ("ale.scans", "broken"): broken}):
        scan_command(records, rules=["short"], limit=1, as_json=True)
        assert json.loads(capsys.readouterr().out)["rules"]["short"]["rollouts"] == 2
        with pytest.raises(
            InvalidArgument, match="the rule 'broken' failed at the trajectory 'loop': KeyError"
        ):
            scan_command(records, rules=["broken"], limit=1, as_json=True)
    with pytest.raises(UnknownName, match="Did you mean 'loops'"):
        scan_command(records, rules=["loop"], limit=1, as_json=True)
