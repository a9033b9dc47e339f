"""Sampling with older weights: which version samples what, what the updates then measure, and a run that is resumed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from local_fleet import Listening, LocalFleet, config_of, learn, local_run
from pydantic import ValidationError

from agent_runtime.store import read_segment, segment_path
from agent_runtime.types import Trajectory
from trainer.config import TrainConfig
from trainer.errors import ConfigError
from trainer.processes.learner import Learner
from trainer.run import Run

STEPS = 5
LAG = 2


def stale_config(staleness: int, **changes: Any) -> TrainConfig:
    small = {"groups_per_step": 3, "group_size": 2, "staleness": staleness}
    return config_of(
        **{
            "steps": STEPS,
            "rollout": small,
            "eval": {"every": 2},
            "optim": {"lr": 3e-2, "minibatches": 1},
            **changes,
        }
    )


def first_wins(trajectory: Trajectory) -> Trajectory:
    """Let the first rollout of a group succeed and no other, so that every group teaches something."""
    if trajectory.is_expert:
        return trajectory
    won = trajectory.index == 0
    return replace(trajectory, reward=float(won), passed=won)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, LocalFleet]:
    folder, config = tmp_path_factory.mktemp("stale"), stale_config(LAG, algo="grpo")
    fleet = LocalFleet(config, change=first_wins)
    with Run(config, folder, fleet, Listening(), resume=False) as run:  # type: ignore[arg-type]
        run.record_experts()
        run.warm_up()
        run.evaluate_warmup()
        play(run, until=STEPS)
        run.finish()
    return folder, fleet


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fresh")
    local_run(folder, stale_config(0, algo="grpo"), change=first_wins)
    return folder


def versions(folder: Path, kind: str, step: int) -> set[int]:
    """Return the policy versions stamped into a record."""
    return {turn.policy_version for t in read_segment(segment_path(folder, kind, step)) for turn in t.turns}


def steps_of(folder: Path) -> list[dict[str, Any]]:
    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [record for record in records if record["kind"] == "train"]


def test_every_step_is_sampled_by_the_version_that_lag_says(whole, fresh):
    """Step k learns from version k - 1 on; in the first steps the oldest version is the one that warm-up left."""
    steps = range(1, STEPS + 1)
    assert [versions(whole[0], "step", k) for k in steps] == [{0}, {0}, {0}, {1}, {2}]
    assert [versions(fresh, "step", k) for k in steps] == [{0}, {1}, {2}, {3}, {4}]


def test_the_lag_is_reported(whole, fresh):
    assert [record["lag/mean"] for record in steps_of(whole[0])] == [0, 1, 2, 2, 2]
    assert [record["lag/max"] for record in steps_of(whole[0])] == [0, 1, 2, 2, 2]
    assert {record["lag/max"] for record in steps_of(fresh)} == {0}


def test_evaluations_use_the_newest_weights(whole):
    for step in (0, 2, 4, STEPS):
        assert versions(whole[0], "eval", step) == {step}


def test_ratios_are_taken_against_the_weights_that_sampled(whole, fresh):
    """A trainer that computed mu again with its present weights would report 1 here."""
    first, *_, last = steps_of(whole[0])
    assert first["mismatch/token_abs"] < 1e-4
    assert last["mismatch/token_abs"] > 1e-2
    assert abs(last["ratio/sequence_mean"] - 1) > 1e-3
    assert abs(last["grpo/ratio"] - 1) > 1e-3
    assert max(record["mismatch/token_abs"] for record in steps_of(fresh)) < 1e-2


def test_a_resumed_run_samples_with_the_versions_that_it_would_have_had(whole, tmp_path):
    config = stale_config(LAG, algo="grpo")
    half, again = (LocalFleet(config, change=first_wins) for _ in range(2))
    with Run(config, tmp_path, half, Listening(), resume=False) as run:
        run.record_experts()
        run.warm_up()
        run.evaluate_warmup()
        play(run, until=3)
        run.save()
    with Run(config, tmp_path, again, Listening(), resume=True) as run:
        assert list(run.remaining_steps()) == [4, 5]
        play(run, until=STEPS)
        run.save()
    wanted = whole[1].weights()
    assert all(np.array_equal(value, wanted[name]) for name, value in again.weights().items())
    kept = sorted(path.name for path in (tmp_path / "checkpoints" / "step-000005").glob("version-*"))
    assert kept == [f"version-{version:08d}.safetensors" for version in (3, 4, 5)]


def play(run: Run, *, until: int) -> None:
    for step in run.remaining_steps():
        if step > until:
            break
        learn(run, step)
        if run.is_evaluation_due(step):
            run.evaluate(step)


def test_without_it_no_weights_are_kept(tmp_path):
    learner = Learner(stale_config(0))
    learner.ready()
    learner.publish(0)
    learner.save(tmp_path)
    assert list(tmp_path.glob("version-*")) == []


def test_snapshots_of_ipa_reach_as_far_back(tmp_path):
    """What samples is kept, and pi_old is computed with it: staleness is measured, and nothing is gone."""
    options = {"behaviour": "snapshots", "snapshots_kept": LAG + 1, "neg_weight": 1, "reward_fail": -1}
    local_run(tmp_path, stale_config(LAG, algo_options=options), change=first_wins)
    last = steps_of(tmp_path)[-1]
    assert "tokens/masked/version_gone" not in last
    assert abs(last["staleness/token_mean"] - last["mismatch/token_mean"]) < 1e-3
    assert abs(last["staleness/token_mean"] - 1) > 1e-4


def test_staleness_that_leaves_nothing_to_learn_is_refused():
    options = {"behaviour": "paper", "snapshots_kept": LAG}
    with pytest.raises(ConfigError, match="snapshots_kept to at least 3"):
        Learner(stale_config(LAG, algo_options=options)).ready()


def test_reuse_that_could_never_reuse_is_refused():
    with pytest.raises(ValidationError, match=r"reuse\.max_lag to at least 3"):
        stale_config(LAG, reuse={"trajectories": 4, "max_lag": LAG})
    assert stale_config(LAG, reuse={"trajectories": 4, "max_lag": LAG + 1}).reuse.max_lag == 3
