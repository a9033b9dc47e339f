"""The monitors against loops over tokens, chunks and trajectories, however the batch is cut."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

import numpy as np
import pytest
import torch
from algo_reference import BUDGET, CONTEXT, ENGINES, learners, ragged_group, tables, trajectory

from trainer.algo.base import LossOutput
from trainer.algo.ipa import Ipa, IPAOptions
from trainer.algo.terms.monitors import LOG_RATIO_BOUND, Monitors, outcome_metrics
from trainer.data.build import build_batch, microbatches

MU, PROX, PI = tables()
ALGORITHM = Ipa(IPAOptions(reward_fail=-1, neg_weight=1, baseline="group_mean"))


def measured(group, pi=PI, prox=PROX, *, old=None, masked=None, cut=lambda batch: [batch]):
    batch, _ = build_batch(group, ALGORITHM.credit(group), token_budget=BUDGET, skip_zero_credit=False)
    if prox is not None:
        batch = replace(batch, prox_logprobs_BT=torch.tensor(prox)[batch.tokens_BT])
    if old is not None:
        batch = replace(batch, old_logprobs_BT=torch.tensor(old)[batch.tokens_BT])
    monitors = Monitors()

    def loss(part, logprobs_BT):
        return LossOutput(logprobs_BT.sum(), masked={} if masked is None else {"far": masked(part)})

    for part in cut(batch):
        monitors.watch(loss)(part, torch.tensor(pi)[part.tokens_BT])
    return monitors.metrics()


def units(group):
    """Return the token ids of every token, chunk (turn) and sequence."""
    turns = [[turn.completion_ids for turn in t.turns if len(turn.completion_ids)] for t in learners(group)]
    chunks = [ids for own in turns for ids in own]
    return {
        "token": [[token] for ids in chunks for token in ids],
        "chunk": chunks,
        "sequence": [np.concatenate(own) for own in turns],
    }


@pytest.mark.parametrize("cut", [lambda batch: [batch], lambda batch: microbatches(batch, 24)])
def test_ratios_are_those_of_a_loop(cut):
    group = ragged_group(MU)
    found = measured(group, cut=cut)
    for unit, members in units(group).items():
        rho = np.array([np.exp(np.mean((PI - MU)[ids])) for ids in members])
        w = np.array([np.exp(np.mean((PROX - MU)[ids])) for ids in members])
        wanted = {
            f"ratio/{unit}_mean": rho.mean(),
            f"ratio/{unit}_max": rho.max(),
            f"ratio/{unit}_ess": rho.sum() ** 2 / len(rho) / (rho**2).sum(),
            f"mismatch/{unit}_mean": w.mean(),
            f"mismatch/{unit}_max": w.max(),
        }
        assert {name: found[name] for name in wanted} == pytest.approx(wanted, rel=1e-9)
    every = np.concatenate(units(group)["chunk"])
    x = (PI - MU)[every]
    assert found["kl/k1"] == pytest.approx(-x.mean(), rel=1e-9)
    assert found["kl/k3"] == pytest.approx((np.exp(x) - 1 - x).mean(), rel=1e-9)
    assert found["mismatch/token_abs"] == pytest.approx(np.abs((PROX - MU)[every]).mean(), rel=1e-9)
    assert found["ratio/token_overflow"] == found["mask/token_share"] == found["mask/chunk_share"] == 0


def test_ratios_are_against_what_was_stored_at_sampling():
    """Recomputed with current weights, every one of them would be 1."""
    group = ragged_group(MU)
    alone = measured(group, prox=None)
    assert alone["ratio/token_mean"] == pytest.approx(alone["mismatch/token_mean"])
    assert abs(alone["ratio/token_mean"] - 1) > 0.02
    fresh = measured(group, pi=MU, prox=MU)
    for unit in ("token", "chunk", "sequence"):
        assert fresh[f"ratio/{unit}_ess"] == pytest.approx(1)
        assert fresh[f"ratio/{unit}_max"] == pytest.approx(1)
    assert fresh["kl/k1"] == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("cut", [lambda batch: [batch], lambda batch: microbatches(batch, 24)])
def test_staleness_and_what_the_engines_disagree_on_are_the_factors_of_the_mismatch(cut):
    """Tokens whose version is gone are in neither; a unit that has none left does not count."""
    group, old = ragged_group(MU), MU + ENGINES
    gone = [*units(group)["chunk"][0], units(group)["chunk"][2][0]]
    old[gone] = np.nan
    found = measured(group, old=old, cut=cut)
    for unit, members in units(group).items():
        known = [ids for ids in (np.setdiff1d(ids, gone) for ids in members) if len(ids)]
        assert len(known) == len(members) - {"token": len(gone), "chunk": 1, "sequence": 0}[unit]
        for name, logs in (("staleness", PROX - MU - ENGINES), ("engines", ENGINES)):
            ratios = np.array([np.exp(np.mean(logs[ids])) for ids in known])
            assert found[f"{name}/{unit}_mean"] == pytest.approx(ratios.mean(), rel=1e-6)
            assert found[f"{name}/{unit}_max"] == pytest.approx(ratios.max(), rel=1e-6)
    assert not any(name.startswith(("staleness/", "engines/")) for name in measured(group, cut=cut))


def test_an_overflowing_ratio_is_counted_and_finite():
    one = trajectory("a", [4, 2], 1.0, ids=count(CONTEXT + 1), mu=MU)
    pi = MU.copy()
    pi[one.turns[0].completion_ids[:3]] += [5000, -5000, LOG_RATIO_BOUND]
    found = measured([one], pi=pi, prox=None)
    assert found["ratio/token_overflow"] == pytest.approx(2 / 6)
    assert all(np.isfinite(value) for value in found.values())
    assert found["ratio/token_max"] == pytest.approx(np.exp(LOG_RATIO_BOUND))


def test_masks_are_shares_of_tokens_and_of_whole_chunks():
    one = trajectory("a", [4, 2], 1.0, ids=count(CONTEXT + 1), mu=MU)
    first, second = (turn.completion_ids for turn in one.turns)
    for ids, tokens, chunks in ((first[:3], 3 / 6, 0), (second, 2 / 6, 1 / 2), (first, 4 / 6, 1 / 2)):
        found = measured([one], masked=lambda part, ids=ids: torch.isin(part.tokens_BT, torch.tensor(ids)))
        assert (found["mask/token_share"], found["mask/chunk_share"]) == pytest.approx((tokens, chunks))


def test_nothing_of_the_rl_term_is_nothing_to_report():
    expert = trajectory("expert", [2], 1.0, ids=count(CONTEXT), expert=True)
    assert measured([expert]) == {}
    assert Monitors().metrics() == {}
    assert outcome_metrics([expert], ALGORITHM.credit([expert])) == {}


def test_watching_changes_no_number():
    group = ragged_group(MU)
    batch, _ = build_batch(group, ALGORITHM.credit(group), token_budget=BUDGET)
    gradients = []
    for loss in (ALGORITHM.loss, Monitors().watch(ALGORITHM.loss)):
        table = torch.tensor(PI, requires_grad=True)
        loss(batch, table[batch.tokens_BT]).loss.backward()
        gradients.append(table.grad)
    assert torch.equal(*gradients)


def test_outcomes_are_of_those_that_learn():
    group = ragged_group(MU)
    credits = ALGORITHM.credit(group)
    found = outcome_metrics(group, credits)
    own = learners(group)
    negatives = [t.sampled_tokens for t in own if t.reward <= 0]
    signs = {1: 0, -1: 0, 0: 0}
    for t, credit in zip(group, credits, strict=True):
        if t in own:
            for turn in t.turns:
                signs[int(np.sign(credit.advantage_K[turn.index]))] += len(turn.completion_ids)
    total = sum(signs.values())
    assert found == pytest.approx(
        {
            "outcome/positive_share": np.mean([t.reward > 0 for t in own]),
            "outcome/positive_tokens": np.mean([t.sampled_tokens for t in own if t.reward > 0]),
            "outcome/negative_tokens": np.mean(negatives),
            "outcome/negative_tokens_max": max(negatives),
            "advantage/positive_share": signs[1] / total,
            "advantage/negative_share": signs[-1] / total,
            "credit/tokens": total - signs[0],
            "credit/groups": 1,
            "credit/effective_groups": 1,
        }
    )
