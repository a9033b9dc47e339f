"""Bad input: each kind is one clear error or a counted mask, and never an update that nobody hears of."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path

import numpy as np
import pytest
import torch
from algo_reference import BUDGET, CONTEXT, ragged_group, tables, trajectory
from local_fleet import Listening, config_of, local_run, lost, stripped

from agent_runtime.store import encode
from agent_runtime.types import Trajectory
from rock_env import plugins
from trainer.algo.base import Algorithm, AlgorithmSpec, LossOutput
from trainer.algo.terms.monitors import LOG_RATIO_BOUND, Monitors
from trainer.data.build import build_batch
from trainer.data.screen import NO_TOKEN, screened_credits
from trainer.errors import BatchError, CheckpointError, Halted
from trainer.learners.torch_train import TorchTrain
from trainer.models.tiny.model import TinyModel, TinyShape
from trainer.processes.learner import Learner
from trainer.protocols.engines import OptimOptions
from trainer.run import Run

MU, _, PI = tables()
NAMES = plugins.names("ale.algorithms")


def algorithm_of(name: str) -> Algorithm:
    spec = plugins.load("ale.algorithms", name)
    assert isinstance(spec, AlgorithmSpec)
    algorithm: Algorithm = spec.build(spec.options())
    return algorithm


def learner_of(**changes: object) -> Learner:
    learner = Learner(config_of(**changes))
    learner.ready()
    return learner


def parameters(learner: Learner) -> dict[str, bytes]:
    return {name: value.tobytes() for name, value in learner.weights().items()}


def refused(trajectories: list[Trajectory], match: str, algo: str = "grpo") -> None:
    """Assert that the learner takes nothing of a step that has such trajectories in it."""
    learner = learner_of(algo=algo)
    before = parameters(learner)
    with pytest.raises(BatchError, match=match):
        learner.update([encode(t) for t in trajectories], [], lr=0.1)
    assert parameters(learner) == before


def small_group(rewards: tuple[float, ...] = (1.0, 0.0)) -> list[Trajectory]:
    """Return rollouts in ids that the tiny model knows."""
    ids = count(CONTEXT + 1)
    return [trajectory(f"t{n}", [2, 2], reward, ids=ids, mu=MU) for n, reward in enumerate(rewards)]


@pytest.mark.parametrize("value", [np.nan, -np.inf, np.inf])
def test_a_sampled_token_without_a_finite_log_probability_is_refused_by_name(value):
    good, bad = small_group()
    logprobs = np.array([-1.0, value], np.float32)
    bad = replace(bad, turns=(bad.turns[0], replace(bad.turns[1], logprobs=logprobs)))
    refused([good, bad], r"trajectory 't1' has .* as its log-probability \(NaN or infinite: 1 of 8 tokens\)")


@pytest.mark.parametrize("what", ["reward", "turn_rewards"])
def test_an_outcome_that_is_not_finite_is_refused_before_its_group_learns_from_it(what):
    good, bad = small_group()
    changes = {"reward": {"reward": np.nan}, "turn_rewards": {"turn_rewards": (0.0, np.inf)}}[what]
    refused([good, replace(bad, **changes)], r"toy@1 graded trajectory 't1' with the reward")


def test_credit_that_float32_cannot_hold_is_refused():
    refused(small_group((1e39, 0.0)), r"credit of trajectory 't0' is not finite", "reinforce")


def broken_engine() -> TorchTrain:
    net = TinyModel(TinyShape(vocabulary=30, layers=1, width=8, heads=1, max_context=32), 0)
    with torch.no_grad():
        next(iter(net.parameters()))[7] = float("nan")
    return TorchTrain(net, OptimOptions(), export=lambda folder: None)


def test_a_policy_that_gives_nan_is_refused_even_if_the_loss_would_mask_it():
    one = trajectory("a", [2, 2], 1.0, ids=count(6), mu=MU)
    batch, _ = build_batch(
        [one], algorithm_of("reinforce").credit([one, one])[:1], token_budget=1, skip_zero_credit=False
    )
    engine = broken_engine()
    before = [value.clone() for value in engine.net.parameters()]

    def deaf(part, logprobs_BT):
        return LossOutput(sum(value.nan_to_num().sum() for value in engine.net.parameters()))

    for ask in (lambda: engine.step(batch, deaf, lr=0.1), lambda: engine.logprobs(batch)):
        with pytest.raises(
            FloatingPointError, match=r"gives \d trained tokens a log-probability that is not finite"
        ):
            ask()
    pairs = zip(before, engine.net.parameters(), strict=True)
    assert all(torch.equal(old.nan_to_num(), new.nan_to_num()) for old, new in pairs)


@pytest.mark.parametrize("name", NAMES)
def test_a_trajectory_without_a_token_is_dropped_before_any_baseline(name):
    """Counted by name, and nobody else's credit moves by a bit."""
    group = ragged_group(MU)
    empty = stripped(trajectory("empty", [1], 0.0, ids=count(CONTEXT)))
    silent = trajectory("silent", [0, 0], 1.0, ids=count(CONTEXT), mu=MU)
    algorithm = algorithm_of(name)
    credits = screened_credits([empty, *group, silent], algorithm.credit)
    _, ledger = build_batch([empty, *group, silent], credits, token_budget=BUDGET)
    assert ledger.dropped_trajectories[NO_TOKEN] == 2
    assert ledger.metrics()["trajectories/dropped/no_token_sampled"] == 2
    for mine, theirs in zip(credits[1:-1], algorithm.credit(group), strict=True):
        np.testing.assert_array_equal(mine.advantage_K, theirs.advantage_K)
        np.testing.assert_array_equal(mine.imitation_K, theirs.imitation_K)


def flat(t: Trajectory) -> Trajectory:
    return t if t.failure else replace(t, reward=1.0, passed=True)


ALONE = {"warmup": {"trajectories": 0}, "anchors": {"scheduler": "none", "inject": 0}}


@pytest.mark.parametrize("algo", ["dapo", "ipa"])
def test_a_step_whose_rollouts_are_all_rejected_halts_with_one_error(algo: str, tmp_path: Path):
    """Never an update on rewards of 0: the learner is not even asked."""
    config = config_of(algo=algo, **ALONE, rollout={"groups_per_step": 2, "max_failure_rate": 1.0})
    with pytest.raises(
        Halted, match=r"6 of 6 rollouts were rejected .* attempts: 18 failed: env_lost\. The first"
    ):
        local_run(tmp_path, config, change=lambda t: t if t.is_expert else lost(t))
    assert not list((tmp_path / "trajectories").glob("step-*"))


def test_steps_in_which_every_group_is_filtered_halt_the_run_where_that_is_asked_for(tmp_path: Path):
    config = config_of(algo="dapo", **ALONE, steps=3, filter={"empty_steps": 2})
    with pytest.raises(Halted, match=r"step 2: .*dropped/group_without_variance\): 2 such steps in a row"):
        local_run(tmp_path, config, change=flat)
    records = map(json.loads, (tmp_path / "metrics.jsonl").read_text().splitlines())
    steps = [record for record in records if record["kind"] == "train"]
    assert [step["updates"] for step in steps] == [0, 0]
    assert [step["filter/extra_groups"] for step in steps] == [4, 4]
    for step in steps:
        assert step["tokens/dropped/group_without_variance"] == step["tokens/total"] > 0


@pytest.mark.parametrize(("change", "fate"), [(stripped, "total"), (flat, "masked/zero_credit")])
def test_a_step_with_nothing_to_learn_says_so_and_moves_nothing(change: Callable, fate: str, tmp_path: Path):
    config = config_of(algo="grpo", **ALONE, steps=1)
    fresh = parameters(learner_of(algo="grpo"))
    fleet, said = local_run(tmp_path, config, change=change)
    assert {name: value.tobytes() for name, value in fleet.weights().items()} == fresh
    (line,) = said
    assert line.startswith("step 1: no token has a gradient, so nothing was learned (")
    records = map(json.loads, (tmp_path / "metrics.jsonl").read_text().splitlines())
    (step,) = (record for record in records if record["kind"] == "train")
    assert step["updates"] == 0
    assert "loss" not in step
    assert step["tokens/trained"] == 0
    assert step[f"tokens/{fate}"] == step["tokens/total"]


@pytest.mark.parametrize("weight", [0, 0.1])
def test_experts_without_a_weight_in_the_loss_are_not_counted_as_imitated(weight: float, tmp_path: Path):
    local_run(tmp_path, config_of(steps=1, algo_options={"lambda_il": weight}))
    records = map(json.loads, (tmp_path / "metrics.jsonl").read_text().splitlines())
    (step,) = (record for record in records if record["kind"] == "train")
    assert (step["tokens/experts"] > 0) == (step["tokens/imitated"] > 0) == (weight > 0)


@pytest.mark.parametrize("shift", [5000.0, -5000.0, LOG_RATIO_BOUND + 1])
@pytest.mark.parametrize("name", NAMES)
def test_an_overflowing_ratio_is_counted_and_leaves_finite_gradients(name, shift):
    group = ragged_group(MU, experts=False)
    algorithm = algorithm_of(name)
    credits = algorithm.credit(group)
    monitors = Monitors(skip_zero_credit=not any(credit.every_token for credit in credits))
    batch, ledger = build_batch(group, credits, token_budget=BUDGET)
    table = torch.tensor(MU + shift, dtype=torch.float32, requires_grad=True)
    output = monitors.watch(algorithm.loss)(batch, table[batch.tokens_BT])
    output.loss.backward()
    if (
        name == "decoupled_ppo" and shift == 5000
    ):  # its correction is unbounded by default: the engine refuses
        assert not torch.isfinite(output.loss)
    else:
        assert torch.isfinite(output.loss)
        assert torch.isfinite(table.grad).all()
    ledger.after_losses(trained=monitors.trained, imitated=0, masked=monitors.masked)
    if batch.loss_mask_BT.any():
        assert monitors.metrics()["ratio/token_overflow"] == 1
        assert all(np.isfinite(value) for value in monitors.metrics().values())
    else:
        assert name == "bc"


def test_a_run_does_not_go_on_in_another_version_of_its_environment(tmp_path: Path) -> None:
    """Anchors and kept successes would mean something else there, and no test of the tokens would notice."""
    config = config_of(steps=0)
    fleet, _ = local_run(tmp_path, config)
    story = tmp_path / "lineage.json"
    text = story.read_text()
    assert "frozen_lake@" in text

    def resume() -> None:
        with Run(config, tmp_path, fleet, Listening(), resume=True) as run:  # type: ignore[arg-type]
            assert not run.is_new

    resume()
    version = json.loads(text)["env"]
    story.write_text(text.replace(f'"env": "{version}"', '"env": "frozen_lake@0"'))
    with pytest.raises(CheckpointError, match=rf"began in frozen_lake@0, but {version} is installed"):
        resume()
