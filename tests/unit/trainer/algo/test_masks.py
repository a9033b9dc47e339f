"""Poison: whatever stands in a masked position, loss and gradient are the same to the bit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from algo_cases import CASES, SPECS
from algo_reference import BUDGET, batch_for, computed, ragged_group, tables

from agent_runtime.types import TurnFault
from trainer.data.build import build_batch


def poisoned(batch, value):
    """Put `value` wherever the batch says that nothing trains."""

    def spoil(values_BT):
        return torch.where(batch.loss_mask_BT, values_BT, torch.tensor(value, dtype=values_BT.dtype))

    def spoil_inside(values_BT):
        """A critic is asked only where a turn opens."""
        return torch.where(batch.opens_turn_BT >= 0, values_BT, torch.tensor(value, dtype=values_BT.dtype))

    critic = ("returns_BT", "old_values_BT", "values_BT")
    return replace(
        batch,
        rollout_logprobs_BT=spoil(batch.rollout_logprobs_BT),
        prox_logprobs_BT=None if batch.prox_logprobs_BT is None else spoil(batch.prox_logprobs_BT),
        reference_logprobs_BT=spoil(batch.reference_logprobs_BT),
        old_logprobs_BT=spoil(batch.old_logprobs_BT),
        advantages_BT=spoil(batch.advantages_BT),
        positive_BT=batch.positive_BT | ~batch.loss_mask_BT,
        chunk_index_BT=torch.where(batch.loss_mask_BT, batch.chunk_index_BT, 0),
        **{name: spoil_inside(getattr(batch, name)) for name in critic if getattr(batch, name) is not None},
    )


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e6])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_masked_positions_change_no_bit(case, value):
    mu, prox, _ = tables()
    for known_prox in (prox, None):
        algorithm = case.build()
        no_bit_changes(algorithm, batch_for(algorithm, ragged_group(mu), known_prox), value)


def no_bit_changes(algorithm, clean, value):
    _, _, pi = tables()
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


@pytest.mark.parametrize("case", CASES, ids=str)
def test_failed_rollouts_do_not_exist_for_the_gradient(case):
    """A failure takes a share of constant divisors at most; it moves no baseline and no other token's credit."""
    mu, prox, pi = tables()
    group = ragged_group(mu)
    survivors = [t for t in group if t.failure is None]
    algorithm = case.build()
    _, grad = computed(algorithm, group, prox, pi)
    _, without = computed(algorithm, survivors, prox, pi)
    for t in group:
        if t.failure:
            assert not any(grad[turn.completion_ids].any() for turn in t.turns)
    expert_ids = [turn.completion_ids for t in group if t.is_expert for turn in t.turns]
    rl = np.ones(len(grad), bool)
    rl[np.concatenate(expert_ids)] = False
    ratio = grad[rl & (without != 0)] / without[rl & (without != 0)]
    constant = getattr(algorithm.options, "aggregation", "constant") == "constant"
    np.testing.assert_allclose(ratio, 6 / 7 if constant else 1, rtol=1e-6)


@pytest.mark.parametrize("name", SPECS)
def test_a_turn_that_failed_or_was_taken_back_is_never_imitated(name):
    """Exactly no gradient, whichever algorithm imitates; what precedes and follows it is imitated as before."""
    mu, _, pi = tables()
    algorithm = SPECS[name][0].build(SPECS[name][0].options())
    (expert,) = (t for t in ragged_group(mu) if t.id == "expert")
    turns = len(expert.turns)
    assert turns >= 2
    for faulty in range(turns):
        faults = tuple(TurnFault.UNDONE if k == faulty else TurnFault.NONE for k in range(turns))
        marked = replace(expert, turn_faults=faults)
        batch, ledger = build_batch([marked], algorithm.credit([marked]), token_budget=BUDGET)
        logprobs_BT = torch.tensor(pi, dtype=torch.float32)[batch.tokens_BT].requires_grad_()
        algorithm.loss(batch, logprobs_BT).loss.backward()
        moved = sorted(batch.tokens_BT[logprobs_BT.grad != 0].tolist())
        imitated = [t for k, turn in enumerate(marked.turns) if k != faulty for t in turn.completion_ids]
        assert moved == sorted(imitated)
        assert ledger.masked["faulty turn"] == len(marked.turns[faulty].completion_ids)
