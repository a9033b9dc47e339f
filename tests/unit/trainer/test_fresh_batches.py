"""IPA learns without a pass over pi_prox what its own weights have just sampled, and ends at the same bits."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from learner_cases import rows_of
from local_fleet import Change, LocalFleet, config_of, local_run
from random_llama import random_llama

from agent_runtime.types import Trajectory
from trainer.algo.ipa import Ipa
from trainer.algo.ipa_options import IPAOptions
from trainer.config import TrainConfig
from trainer.learners.torch_train import TorchTrain
from trainer.processes.learner import Learner

BASELINE = {"baseline": "leave_one_out"}


class Computes(LocalFleet):
    """A fleet whose learner knows nothing of how well its engine's two sides agree."""

    def __init__(self, config: TrainConfig, **rest: Any) -> None:
        super().__init__(config, **rest)
        self._learner._agreement = 0.0


def first_wins(trajectory: Trajectory) -> Trajectory:
    """Let the first rollout of a group succeed and no other, so that every group teaches something."""
    if trajectory.is_expert:
        return trajectory
    return replace(trajectory, reward=float(trajectory.index == 0), passed=trajectory.index == 0)


def first_wins_as_another_engine(trajectory: Trajectory) -> Trajectory:
    """Let also the sampler's log-probabilities differ from the learner's, by 1e-4; on some processors they do not."""
    turns = tuple(replace(turn, logprobs=turn.logprobs - np.float32(1e-4)) for turn in trajectory.turns)
    return first_wins(trajectory if trajectory.is_expert else replace(trajectory, turns=turns))


def run(
    folder: Path, kind: type[LocalFleet] = LocalFleet, change: Change = first_wins, **changes: Any
) -> tuple[LocalFleet, list[dict[str, Any]]]:
    """Train for three steps; return the fleet and the metrics of its steps."""
    options = {"algo": "ipa", "algo_options": BASELINE, "optim": {"lr": 3e-2, "minibatches": 2}, **changes}
    fleet, _ = local_run(folder, config_of(steps=3, **options), kind=kind, change=change)
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return fleet, [record for line in lines if (record := json.loads(line))["kind"] == "train"]


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return, one for each pass that a learner takes without a gradient, how many RL tokens it is over."""
    asked: list[int] = []
    ask = TorchTrain.logprobs

    def noted(train: TorchTrain, batch: Any, *rest: Any) -> Any:
        asked.append(int(batch.loss_mask_BT.sum()))
        return ask(train, batch, *rest)

    monkeypatch.setattr(TorchTrain, "logprobs", noted)
    return asked


def test_the_same_bits_without_the_pass(tmp_path, passes):
    spared, records = run(tmp_path / "spared")
    assert not any(passes)
    computed, expected = run(tmp_path / "computed", Computes)
    assert sum(count > 0 for count in passes) == 3
    wanted = computed.weights()
    assert all(np.array_equal(value, wanted[name]) for name, value in spared.weights().items())
    assert sum(record["updates"] for record in records) == 6
    same = [name for name in expected[0] if name.startswith(("ratio/", "mask/", "tokens/", "kl/", "ipa/"))]
    assert len(same) > 12
    for one, two in zip(records, expected, strict=True):
        assert {name: one[name] for name in same} == {name: two[name] for name in same}
        assert one["loss"] == two["loss"]
        assert one["grad_norm"] == two["grad_norm"]


def test_a_hugging_face_model_in_float32_ends_at_the_same_bits_without_the_pass(tmp_path, passes):
    model = random_llama(tmp_path, context=512)
    changes = {
        "model": model,
        "engine_options": {},
        "agent": {"system": True},
        "optim": {"lr": 1e-4, "minibatches": 2},
        "warmup": {"lr": 1e-4},
        "guard": {"text_rise": 0},
    }
    spared, records = run(tmp_path / "spared", **changes)
    assert not any(passes)
    computed, expected = run(tmp_path / "computed", Computes, **changes)
    assert sum(count > 0 for count in passes) == 3
    wanted = computed.weights()
    assert all(np.array_equal(value, wanted[name]) for name, value in spared.weights().items())
    assert sum(record["updates"] for record in records) == 6
    assert [record["grad_norm"] for record in records] == [record["grad_norm"] for record in expected]
    assert 0 < max(record["mismatch/token_abs"] for record in records) < 1e-3


def test_in_less_than_float32_the_pass_stays(tmp_path):
    model = random_llama(tmp_path, context=512)
    half, full = (
        Learner(config_of(algo="ipa", model=model, engine_options={"dtype": dtype}))
        for dtype in ("bfloat16", "float32")
    )
    half.ready()
    full.ready()
    assert half._agreement == 0 < full._agreement


def test_the_mismatch_is_then_measured_where_the_first_update_learns(tmp_path):
    """Measured, not taken for 0: what the engines disagree on is there, and below what is promised."""
    fleet, records = run(tmp_path, change=first_wins_as_another_engine)
    measured = max(record["mismatch/token_abs"] for record in records)
    assert 5e-5 < measured < fleet._learner._agreement


@pytest.mark.parametrize(
    "changes",
    [
        {"rollout": {"staleness": 1}},
        {"algo_options": {**BASELINE, "neg_weight": 0.3}},
        {"algo_options": {**BASELINE, "mask_high": 1.001}},
        {"algo_options": {**BASELINE, "mask_low": 0.999}},
        {"algo": "decoupled_ppo", "algo_options": {}},
    ],
    ids=["stale", "failures are learned", "narrow above", "narrow below", "another algorithm"],
)
def test_where_it_could_change_something_it_is_computed(changes, tmp_path, passes):
    run(tmp_path, **changes)
    assert any(passes)


CLI_AGENT = {
    "agent": {"name": "aider", "window_turns": 0, "system": True},
    "anchors": {"scheduler": "none", "inject": 0, "self_sampled": False},
    "warmup": {"trajectories": 0, "held_out": 0},
    "rollout": {"batching": "eager"},
}


@pytest.mark.parametrize("changes", [{"sampler": "coder"}, CLI_AGENT], ids=["another sampler", "an agent"])
def test_another_sampler_or_an_agent_may_not_sample_as_the_learner_would(changes):
    one, other = Learner(config_of(algo="ipa")), Learner(config_of(algo="ipa", **changes))
    one.ready()
    other.ready()
    assert one._agreement > 0
    assert other._agreement == 0


def test_a_success_below_its_baseline_is_weighed_by_its_ratio():
    batch = rows_of([6, 8, 7])
    algorithm = Ipa(IPAOptions(baseline="leave_one_out"))
    above = replace(batch, advantages_BT=batch.advantages_BT.abs())
    assert algorithm.spares_prox(above, 0.01)
    below = replace(batch, advantages_BT=-above.advantages_BT)
    assert not algorithm.spares_prox(below, 0.01)
    failures = replace(above, positive_BT=above.positive_BT & False)
    assert not algorithm.spares_prox(failures, 0.01)
    assert algorithm.spares_prox(replace(failures, advantages_BT=batch.advantages_BT * 0), 0.01)
