"""Poison: whatever stands in a masked position, loss and gradient are the same to the bit."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import numpy as np
import pytest
import torch
from algo_reference import BUDGET, computed, ragged_group, tables

from trainer.algo.bc import Bc, BCOptions
from trainer.algo.grpo import Grpo, GRPOOptions
from trainer.algo.ipa import Ipa, IPAOptions
from trainer.algo.loss import Aggregation
from trainer.algo.reinforce import Reinforce, REINFORCEOptions
from trainer.data.build import build_batch

ALGORITHMS = {
    "ipa": Ipa(IPAOptions(reward_fail=-1, neg_weight=1, mask_high=1.5)),
    "ipa with baseline": Ipa(IPAOptions(baseline="leave_one_out", chunk_turns=2)),
    "reinforce": Reinforce(REINFORCEOptions()),
    **{f"grpo {mode}": Grpo(GRPOOptions(aggregation=mode)) for mode in get_args(Aggregation)},
    **{f"bc {mode}": Bc(BCOptions(aggregation=mode)) for mode in get_args(Aggregation)},
}


def poisoned(batch, value):
    """Put `value` wherever the batch says that nothing trains."""

    def spoil(values_BT):
        return torch.where(batch.loss_mask_BT, values_BT, torch.tensor(value, dtype=values_BT.dtype))

    return replace(
        batch,
        rollout_logprobs_BT=spoil(batch.rollout_logprobs_BT),
        prox_logprobs_BT=None if batch.prox_logprobs_BT is None else spoil(batch.prox_logprobs_BT),
        advantages_BT=spoil(batch.advantages_BT),
        positive_BT=batch.positive_BT | ~batch.loss_mask_BT,
        chunk_index_BT=torch.where(batch.loss_mask_BT, batch.chunk_index_BT, 0),
    )


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e6])
@pytest.mark.parametrize("with_prox", [False, True])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_masked_positions_change_no_bit(name, value, with_prox):
    mu, prox, pi = tables()
    algorithm, group = ALGORITHMS[name], ragged_group(mu)
    clean, _ = build_batch(group, algorithm.credit(group), token_budget=BUDGET)
    if with_prox:
        clean = replace(clean, prox_logprobs_BT=torch.tensor(prox, dtype=torch.float32)[clean.tokens_BT])
    trains_BT = clean.loss_mask_BT | (clean.imitation_BT != 0)
    results = []
    for batch, filler in ((clean, 0.0), (poisoned(clean, value), value)):
        logprobs_BT = torch.tensor(pi, dtype=torch.float32)[batch.tokens_BT]
        logprobs_BT = torch.where(trains_BT, logprobs_BT, filler).requires_grad_()
        output = algorithm.loss(batch, logprobs_BT)
        output.loss.backward()
        results.append((output.loss.detach(), logprobs_BT.grad, output.metrics))
    (loss, grad, metrics), (other_loss, other_grad, other_metrics) = results
    assert torch.isfinite(loss)
    assert grad[trains_BT].any()
    assert not grad[~trains_BT].any()
    assert torch.equal(loss, other_loss)
    assert torch.equal(grad, other_grad)
    assert metrics == other_metrics


@pytest.mark.parametrize("name", ALGORITHMS)
def test_failed_rollouts_do_not_exist_for_the_gradient(name):
    """A failure takes a share of constant divisors at most; it moves no baseline and no other token's credit."""
    mu, prox, pi = tables()
    group = ragged_group(mu)
    survivors = [t for t in group if t.failure is None]
    _, grad = computed(ALGORITHMS[name], group, prox, pi)
    _, without = computed(ALGORITHMS[name], survivors, prox, pi)
    for t in group:
        if t.failure:
            assert not any(grad[turn.completion_ids].any() for turn in t.turns)
    expert_ids = [turn.completion_ids for t in group if t.is_expert for turn in t.turns]
    rl = np.ones(len(grad), bool)
    rl[np.concatenate(expert_ids)] = False
    ratio = grad[rl & (without != 0)] / without[rl & (without != 0)]
    constant = name.startswith(("ipa", "reinforce")) or name.endswith("constant")
    np.testing.assert_allclose(ratio, 6 / 7 if constant else 1, rtol=1e-6)
