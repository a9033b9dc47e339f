"""What the console says of a run's health and of two steps, on columns with planted causes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from console_run import client, plain, write_run

from ale.console.signs import between, signs

STEPS = range(1, 41)
WELL: Mapping[str, Sequence[float]] = {
    "loss": [0.1] * 40,
    "updates": [1.0] * 40,
    "success": [0.5] * 40,
    "entropy": [1.0] * 40,
    "groups": [8.0] * 40,
    "credit/groups": [3.0] * 40,
    "mismatch/token_abs": [1e-4] * 40,
    "faults/infrastructure": [0.0] * 40,
    "filter/played": [64.0] * 40,
}


def late(before: float, after: float) -> list[float]:
    return [before] * 30 + [after] * 10


def test_a_healthy_run_has_no_sign() -> None:
    assert signs(WELL) == {"checks": 6, "bad": []}


def test_a_check_without_numbers_is_not_counted() -> None:
    assert signs({}) == {"checks": 0, "bad": []}
    assert signs({"success": [0.5]}) == {"checks": 1, "bad": []}
    stale = {**WELL, "mismatch/token_abs": [0.2] * 40, "lag/max": [2.0] * 40}
    assert signs(stale) == {"checks": 5, "bad": []}


@pytest.mark.parametrize(
    ("planted", "said"),
    [
        ({"loss": late(0.1, math.nan)}, "no number"),
        ({"loss": late(0.1, math.inf)}, "no number"),
        ({"credit/groups": late(3, math.nan)}, "no more than 0 of 8 groups taught in 8 steps"),
        ({"credit/groups": late(3, 0)}, "no more than 0 of 8 groups taught in 8 steps"),
        ({"entropy": late(1, 0.05)}, "entropy is 0.05, at first it was 1"),
        ({"success": late(0.5, 0.1)}, "success is 0.10, at best it was 0.50"),
        ({"mismatch/token_abs": late(0, 0.2)}, "differ by 0.2 nats"),
        ({"faults/infrastructure": late(0, 16)}, "25% of the rollouts failed to run"),
    ],
)
def test_each_planted_cause_is_said(planted: Mapping[str, Sequence[float]], said: str) -> None:
    [bad] = signs({**WELL, **planted})["bad"]
    assert said in bad


def test_a_run_that_begins_to_learn_is_healthy() -> None:
    success = [0.0] * 36 + [0.1, 0.3, 0.6, 0.6]
    assert signs({**WELL, "success": success})["bad"] == []


def test_numbers_too_large_to_reckon_with_are_left_out() -> None:
    large = {name: [1e308, -1e308] * 20 for name in WELL}
    assert signs(large)["bad"] == []
    assert between(STEPS, large, None, None)["moved"] == []


def test_a_run_that_solves_everything_may_try_little() -> None:
    assert signs({**WELL, "success": late(0.5, 1), "entropy": late(1, 0.01)})["bad"] == []


def test_what_moved_most_between_two_steps_comes_first() -> None:
    wave = [0.01 * (step % 2) for step in STEPS]
    columns = {
        "noise": wave,
        "moved": [value + (step > 20) for step, value in zip(STEPS, wave, strict=True)],
        "learn_s": late(1, 9),
        "level": [1.0] * 40,
        "gap": [math.nan] * 40,
    }
    found = between(STEPS, columns, 11, 36)
    assert (found["first"], found["last"]) == (11, 36)
    assert found["moved"][0]["name"] == "moved"
    assert not {each["name"] for each in found["moved"]} & {"learn_s", "level", "gap"}
    assert between(STEPS, columns, None, 10_000)["last"] == 40
    assert between([], {}, 1, 2)["moved"] == []


def test_tasks_that_are_never_solved_and_tasks_that_changed_are_told(tmp_path: Path) -> None:
    def played(task: str, step: int, *, passed: bool) -> object:
        return replace(plain(), id=f"{task}-{step}", task_id=task, policy_step=step, passed=passed)

    steps = {
        step: [
            played("falls", step, passed=step < 5),
            played("never", step, passed=False),
            played("easy", step, passed=True),
        ]
        for step in (1, 9)
    }
    asks = client(write_run(tmp_path / "run", steps))  # type: ignore[arg-type]
    grid = asks.get("/api/runs/run/grid").json()["step"]
    assert (grid["never_solved"], grid["unsolved"], grid["of"]) == (["never"], 1, 3)
    found = asks.get("/api/runs/run/between", params={"first": 1, "last": 9}).json()
    assert found["tasks"] == [{"kind": "step", "task": "falls", "first": [1, 1], "last": [0, 1], "by": -1.0}]
    assert asks.get("/api/runs/run/between", params={"first": "x"}).status_code == 422
