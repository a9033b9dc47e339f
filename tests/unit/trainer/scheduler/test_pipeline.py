"""`rollout.mode=pipeline`: the very weights of `sync` with the same staleness, twice in a row, killed and resumed."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from local_fleet import Listening, LocalFleet, config_of
from pydantic import ValidationError

from agent_runtime.store import read_segment, segment_path
from agent_runtime.types import Trajectory
from trainer.config import TrainConfig
from trainer.run import Run
from trainer.scheduler.journal import JOURNAL, audit, entries

STEPS = 6


def config(mode: str, lag: int, **changes: Any) -> TrainConfig:
    small = {
        "groups_per_step": 3,
        "group_size": 2,
        "staleness": lag,
        "mode": mode,
        **changes.pop("rollout", {}),
    }
    return config_of(
        **{
            "steps": STEPS,
            "rollout": small,
            "eval": {"every": 2},
            "optim": {"lr": 3e-2, "minibatches": 1},
            "checkpoint": {"every": 1, "keep": 9},
            **changes,
        }
    )


def by_index(trajectory: Trajectory) -> Trajectory:
    """Let half of the groups vary, so that anchors, pass rates and replaced groups all have something to follow."""
    if trajectory.is_expert:
        return trajectory
    won = trajectory.index == 0 or trajectory.seed % 3 == 0
    return replace(trajectory, reward=float(won), passed=won)


VARIANTS: dict[str, dict[str, Any]] = {
    "anchors": {},
    "grpo": {"algo": "grpo"},
    "pass rates": {"curriculum": {"tasks": "pass_rate"}},
    "dynamic groups": {"filter": {"dynamic": "on", "dynamic_extra": 1.0}},
    "reuse": {"reuse": {"trajectories": 2, "max_lag": 4}},
    "critic": {"algo": "ppo", "anchors": {"scheduler": "none", "inject": 0}},
}


def weights(folder: Path, changed: TrainConfig) -> dict[str, bytes]:
    local = LocalFleet(changed, change=by_index)
    driven(folder, changed, local, until("never", 0))
    return held(local)


def held(fleet: LocalFleet) -> dict[str, bytes]:
    return {name: np.asarray(value).tobytes() for name, value in fleet.weights().items()}


def driven(folder: Path, changed: TrainConfig, fleet: LocalFleet, go: Callable[[Run], None]) -> None:
    """Begin a run or go on with it, as the loop does, and go through its steps by `go`."""
    with Run(changed, folder, fleet, Listening(), resume=folder.exists()) as run:  # type: ignore[arg-type]
        if run.is_new:
            run.record_experts()
        if run.is_warming_up:
            run.warm_up()
            run.save()
        if run.is_unmeasured:
            run.evaluate_warmup()
        go(run)
        run.finish()


def told(folder: Path) -> list[dict[str, Any]]:
    """Return what a run reported, without what was measured by a clock."""
    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    timed = ("time", "turns_per", "tokens_per", "busy", "bound")
    return [
        {
            name: value
            for name, value in record.items()
            if not name.startswith(timed) and not name.endswith("_s")
        }
        for record in records
    ]


FIRST = {("anchors", 1), ("dynamic groups", 2)}
"""What the fast part of the tests tries; the others are as different, and slow."""


@pytest.mark.parametrize(
    ("name", "lag"),
    [
        pytest.param(name, lag, marks=[] if (name, lag) in FIRST else pytest.mark.slow)
        for name in VARIANTS
        for lag in (1, 2)
    ],
)
def test_it_learns_what_a_synchronous_run_with_that_staleness_learns(
    tmp_path: Path, name: str, lag: int
) -> None:
    folders = [tmp_path / mode for mode in ("sync", "pipeline", "again")]
    first, *others = [
        weights(folder, config("sync" if folder.name == "sync" else "pipeline", lag, **VARIANTS[name]))
        for folder in folders
    ]
    assert all(other == first for other in others)
    assert told(folders[1]) == told(folders[0])
    journal = audit(entries(folders[1] / JOURNAL))
    assert (journal.lost, journal.twice) == ([], [])
    assert journal.consumed == STEPS * 6


def test_every_plan_is_played_with_the_version_that_its_lag_says(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    weights(folder, config("pipeline", 2))
    seen = [
        {turn.policy_version for t in read_segment(segment_path(folder, "step", step)) for turn in t.turns}
        for step in range(1, STEPS + 1)
    ]
    assert seen == [{0}, {0}, {0}, {1}, {2}, {3}]
    for step in (0, 2, 4, STEPS):
        played = read_segment(segment_path(folder, "eval", step))
        assert {turn.policy_version for t in played for turn in t.turns} == {step}


class Killed(BaseException):
    """What ends a process at once."""


def until(point: str, step: int) -> Callable[[Run], None]:
    """Go through the steps and end without a word at this point of a step."""

    def go(run: Run) -> None:
        for number in run.remaining_steps():
            batch = run.batch(number)
            if (point, step) == ("batch", number):
                raise Killed
            run.learn(batch)
            if (point, step) == ("learn", number):
                raise Killed
            run.publish(number)
            if (point, step) == ("publish", number):
                raise Killed
            run.report(batch)
            if run.is_evaluation_due(number):
                run.evaluate(number)
            if number % 2:
                run.save()

    return go


@pytest.mark.parametrize(
    ("mode", "point"),
    [
        ("pipeline", "batch"),
        *(
            pytest.param(mode, point, marks=pytest.mark.slow)
            for mode in ("sync", "pipeline")
            for point in ("batch", "learn", "publish")
            if (mode, point) != ("pipeline", "batch")
        ),
    ],
)
def test_a_killed_run_ends_as_an_undisturbed_one(tmp_path: Path, mode: str, point: str) -> None:
    """The plans that were played before the kill are not played again where the weights that they had are still there."""
    changed = config(mode, 1)
    whole = weights(tmp_path / "whole", changed)
    folder, played = tmp_path / "killed", []
    for go in (until(point, 2), until(point, 4), until("never", 0)):
        fleet = LocalFleet(changed, change=by_index)
        play = fleet.play_at

        async def counted(worker: int, requests: Any, step: int, play: Any = play) -> Any:
            found = await play(worker, requests, step)
            played.append(step)
            return found

        fleet.play_at = counted  # type: ignore[method-assign]
        try:
            driven(folder, changed, fleet, go)
        except Killed:
            continue
    assert held(fleet) == whole
    journal = audit(entries(folder / JOURNAL))
    assert (journal.lost, journal.twice, journal.consumed) == ([], [], STEPS * 6)
    if point == "batch":  # the plan that was in was learned after the kill, from its record
        assert played.count(2) == played.count(4) == 1


def test_it_is_refused_without_a_lag() -> None:
    with pytest.raises(ValidationError, match=r"rollout.staleness=0, expected at least 1"):
        config("pipeline", 0)


def test_it_is_refused_where_samplers_sleep_while_the_learner_learns() -> None:
    pool = [{"cpus": 2}, {"cpus": 2}]
    with pytest.raises(ValidationError, match="samplers in the learner's bundle 0, which sleep meanwhile"):
        config("pipeline", 1, placement={"pool": pool})
    config("pipeline", 1, placement={"pool": pool, "layout": "disaggregated"})
