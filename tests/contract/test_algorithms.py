"""What every installed algorithm must keep, built in or not."""

from __future__ import annotations

import pickle
import tomllib
from dataclasses import replace
from itertools import count
from pathlib import Path

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from agent_runtime.types import RolloutFailure, Start, StopReason, Trajectory, Turn
from ale import config
from rock_env import plugins
from trainer.algo.base import AlgoOptions, AlgorithmSpec, credit_step
from trainer.config import TrainConfig
from trainer.data.build import build_batch, microbatches, split_rows

ROOT = Path(__file__).parents[2]
NAMES = plugins.names("ale.algorithms")
OURS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["entry-points"][
    "ale.algorithms"
]
VOCABULARY = 120
MU = np.log(np.random.default_rng(7).uniform(0.1, 0.9, VOCABULARY)).astype(np.float32)


def spec_of(name: str) -> AlgorithmSpec:
    spec = plugins.load("ale.algorithms", name)
    assert isinstance(spec, AlgorithmSpec)
    return spec


@pytest.fixture(params=NAMES)
def algorithm(request):
    spec = spec_of(request.param)
    return spec.build(spec.options())


def trajectory(ids, name, lengths, reward, *, expert=False, failed=False, windowed=False):
    turns = []
    for k, length in enumerate(lengths):
        completion = np.array([next(ids) for _ in range(length)], np.int32)
        turns.append(
            Turn(
                index=k,
                parent=None if windowed or k == 0 else k - 1,
                context_ids=np.array([1, 2], np.int32),
                completion_ids=completion,
                logprobs=np.full(length, np.nan, np.float32) if expert else MU[completion],
                finish_reason="expert" if expert else "stop",
                policy_version=-1 if expert else 0,
            )
        )
    n = len(turns)
    return Trajectory(
        id=name,
        env="toy@1",
        params_json="{}",
        task_id="t",
        group_id="g",
        index=0,
        seed=0,
        start=Start(0),
        first_observation="",
        turns=tuple(turns),
        actions=("a",) * n,
        observations=("o",) * n,
        observation_hashes=(b"",) * n,
        turn_rewards=(0.0,) * n,
        illegal_actions=0,
        reward=float("nan") if failed else reward,
        passed=reward > 0,
        stop_reason=StopReason.FAILED if failed else StopReason.TERMINATED,
        failure=RolloutFailure("policy", "gone", 0) if failed else None,
    )


def group():
    ids = count(3)
    return [
        trajectory(ids, "won", [2, 3, 1], 1.0),
        trajectory(ids, "lost", [4, 0, 2], 0.0, windowed=True),
        trajectory(ids, "broken", [3], 0.0, failed=True),
        trajectory(ids, "won too", [1, 1, 1, 1], 1.0, windowed=True),
        trajectory(ids, "expert", [2, 2, 2], 1.0, expert=True),
    ]


def batch_of(algorithm):
    members = group()
    batch, _ = build_batch(members, credit_step(algorithm, members), token_budget=20, skip_zero_credit=False)
    if (
        batch.returns_BT is not None and batch.old_values_BT is not None
    ):  # sums of squares, compared to nine digits
        doubled = batch.returns_BT.double(), batch.old_values_BT.double()
        batch = replace(batch, returns_BT=doubled[0], old_values_BT=doubled[1])
    prox = torch.tensor(MU) + 0.2 * torch.sin(torch.arange(VOCABULARY))
    return replace(batch, prox_logprobs_BT=prox[batch.tokens_BT]) if algorithm.needs_prox else batch


def policy():
    """Return log-probabilities by token id, away from those that sampled."""
    return (torch.tensor(MU) + 0.3 * torch.cos(torch.arange(VOCABULARY))).double()


def run(algorithm, batch, table):
    table = table.clone().requires_grad_()
    output = algorithm.loss(batch, table[batch.tokens_BT])
    output.loss.backward()
    return output.loss.item(), table.grad, output.metrics


@pytest.mark.parametrize("name", NAMES)
def test_the_spec_describes_itself(name):
    spec = spec_of(name)
    assert spec.name == name
    assert spec.summary
    assert issubclass(spec.options, AlgoOptions)
    for option, info in spec.options.model_fields.items():
        assert info.description, f"{name}.{option} has no docstring"


@pytest.mark.parametrize("name", NAMES)
def test_unknown_options_are_refused(name):
    with pytest.raises(ValidationError, match="not_an_option"):
        spec_of(name).options(not_an_option=1)


@pytest.mark.parametrize("name", NAMES)
def test_its_defaults_survive_the_record_of_a_run(name):
    """`config.toml` holds every option of the algorithm, and `--resume` reads them from there."""
    made = config.expand(TrainConfig(algo=name))
    recorded = tomllib.loads(config.render(made))["algo_options"]
    assert recorded == made.algo_options == spec_of(name).options().model_dump()
    assert config.expand(TrainConfig(algo=name, algo_options=recorded)) == made


@pytest.mark.parametrize("name", OURS)
def test_the_documentation_has_a_row_for_it(name):
    docs = ROOT / "docs" / "algorithms.md"
    assert f"| `{name}` |" in docs.read_text(encoding="utf-8")


def test_credit_is_aligned_with_the_group(algorithm):
    members = group()
    for t, credit in zip(members, algorithm.credit(members), strict=True):
        assert len(credit.advantage_K) == len(credit.imitation_K) == len(t.turns)
        assert np.isfinite(credit.advantage_K).all()
        assert bool(credit.dropped) or t.failure is None
        if t.is_expert:
            assert not credit.advantage_K.any()
        else:
            assert not credit.imitation_K.any()


def test_credit_of_no_trajectory_is_none(algorithm):
    assert algorithm.credit([]) == []


def test_credit_of_failures_alone_is_dropped(algorithm):
    assert [bool(c.dropped) for c in algorithm.credit([group()[2]])] == [True]


def test_experts_and_failures_move_nobody_elses_credit(algorithm):
    members = group()
    everyone = dict(zip([t.id for t in members], algorithm.credit(members), strict=True))
    rest = [t for t in members if t.failure is None and not t.is_expert]
    for t, credit in zip(rest, algorithm.credit(rest), strict=True):
        np.testing.assert_array_equal(credit.advantage_K, everyone[t.id].advantage_K)


def test_credit_and_loss_are_pure(algorithm):
    one, other = (run(algorithm, batch_of(algorithm), policy()) for _ in range(2))
    assert one[0] == other[0]
    assert torch.equal(one[1], other[1])
    assert one[2] == other[2]


@pytest.mark.parametrize("value", [float("nan"), 1e6])
def test_masked_entries_change_no_bit(algorithm, value):
    batch = batch_of(algorithm)
    trains_BT = batch.loss_mask_BT | (batch.imitation_BT != 0)
    results = []
    for filler in (0.0, value):
        spoil = {
            name: torch.where(batch.loss_mask_BT, getattr(batch, name), filler)
            for name in ("rollout_logprobs_BT", "advantages_BT", "prox_logprobs_BT")
            if getattr(batch, name) is not None
        }
        logprobs_BT = torch.where(trains_BT, policy()[batch.tokens_BT], filler).requires_grad_()
        output = algorithm.loss(replace(batch, **spoil), logprobs_BT)
        output.loss.backward()
        results.append((output.loss.detach(), logprobs_BT.grad, output.metrics))
    assert torch.isfinite(results[0][0])
    assert torch.equal(results[0][0], results[1][0])
    assert torch.equal(results[0][1], results[1][1])
    assert not results[1][1][~trains_BT].any()
    assert results[0][2] == results[1][2]


@pytest.mark.parametrize("cut", [lambda b: microbatches(b, 24), lambda b: split_rows(b, 2)])
def test_parts_add_up_to_the_batch(algorithm, cut):
    batch = batch_of(algorithm)
    loss, grad, _ = run(algorithm, batch, policy())
    parts = [run(algorithm, part, policy()) for part in cut(batch)]
    assert sum(part[0] for part in parts) == pytest.approx(loss, rel=1e-9)
    np.testing.assert_allclose(sum(part[1] for part in parts), grad, rtol=1e-9, atol=1e-14)


def test_padding_changes_nothing(algorithm):
    members = group()
    losses = [
        run(
            algorithm, build_batch(members, algorithm.credit(members), token_budget=20, pad_to=n)[0], policy()
        )
        for n in (1, 64)
    ]
    np.testing.assert_allclose(losses[0][1], losses[1][1], rtol=1e-9, atol=1e-14)


def test_a_small_step_makes_what_was_rewarded_likelier(algorithm):
    members = group()
    batch = replace(batch_of(algorithm), prox_logprobs_BT=None)
    _, grad, _ = run(algorithm, batch, torch.tensor(MU).double())
    likelier = [
        t
        for t, c in zip(members, credit_step(algorithm, members), strict=True)
        if c.positive and not c.dropped
    ]
    assert likelier
    for t in likelier:
        for turn in t.turns:
            assert (grad[turn.completion_ids] < 0).all()


def test_it_travels_to_another_process(algorithm):
    batch = batch_of(algorithm)
    copy = pickle.loads(pickle.dumps(algorithm))
    assert run(copy, batch, policy())[0] == run(algorithm, batch, policy())[0]


def test_an_empty_batch_has_no_loss(algorithm):
    batch, _ = build_batch([], [], token_budget=20)
    assert algorithm.loss(batch, torch.zeros(0, 0, requires_grad=True)).loss.item() == 0
