"""Bounds met exactly, numbers that no gradient shows, and accounts that a rare shape could open."""

from __future__ import annotations

from dataclasses import fields, replace
from itertools import count

import numpy as np
import pytest
import torch
from algo_cases import SPECS
from algo_reference import BUDGET, CONTEXT, learners, ragged_group, tables, trajectory
from family_reference import family_group

from trainer.algo.base import Credit, credit_step
from trainer.algo.terms.kl import kl_estimate
from trainer.algo.terms.monitors import Monitors
from trainer.data.build import build_batch, microbatches

MU, PROX, PI = tables()


def made(name, **options):
    spec, _ = SPECS[name]
    return spec.build(spec.options(**options))


def batch_of(algorithm, group, **options):
    return build_batch(group, credit_step(algorithm, group), token_budget=BUDGET, **options)[0]


# -- bounds ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("ipa", {"mask_low": 1, "mask_high": 1}),
        *(("grpo", {"correction": kind, "correction_high": 1}) for kind in ("mis_token", "mis_chunk")),
        *(
            ("rloo", {"correction": kind, "correction_low": 1, "correction_high": 1})
            for kind in ("icepop", "geometric_chunk", "geometric_sequence")
        ),
    ],
)
def test_a_ratio_of_exactly_1_is_within_bounds_of_1(name, options):
    """On-policy, that is: whoever sets a bound to 1 wants what is fresh."""
    algorithm = made(name, **options)
    batch = batch_of(algorithm, family_group(MU))
    output = algorithm.loss(batch, batch.rollout_logprobs_BT)
    assert len(output.masked) == 1
    assert not any(masked_BT.any() for masked_BT in output.masked.values())


def test_k3_of_a_likelihood_that_vanished_is_finite_and_pulls_no_more():
    x = torch.tensor([-5000.0, -19.0], requires_grad=True)
    value = kl_estimate(x, "k3")
    assert torch.isfinite(value).all()
    value.sum().backward()
    assert x.grad.tolist() == pytest.approx([1.0, 1 - np.exp(19)])


# -- what an algorithm says of itself -------------------------------------------------------------------------


def reported(algorithm, group):
    """Return the means of the algorithm's own metrics, each (ratio, advantage, ids of the turn) and the trajectories."""
    batch = batch_of(algorithm, group, skip_zero_credit=False)
    metrics = algorithm.loss(batch, torch.tensor(PI)[batch.tokens_BT]).metrics
    turns = [
        (
            credit.advantage_K[turn.index],
            turn.completion_ids,
            np.concatenate([u.completion_ids for u in t.turns]),
        )
        for t, credit in zip(group, credit_step(algorithm, group), strict=True)
        for turn in t.turns
        if t in learners(group) and len(turn.completion_ids)
    ]
    return {name: metric.total / metric.weight for name, metric in metrics.items() if metric.weight}, turns


def test_what_the_clip_changes_is_counted():
    found, turns = reported(made("grpo", clip_low=0.1, clip_high=0.3, dual_clip=1.5), family_group(MU))
    ratios = [np.exp((PI - MU)[ids]) for _, ids, _ in turns]
    changed = [
        (r > 1.3) if a > 0 else ((r < 0.9) | (r > 1.5)) if a < 0 else np.zeros(len(r), bool)
        for (a, _, _), r in zip(turns, ratios, strict=True)
    ]
    assert abs(np.concatenate(changed).mean() - 0.5) > 0.01
    assert found["grpo/clipped_tokens"] == pytest.approx(np.concatenate(changed).mean())
    assert found["grpo/ratio"] == pytest.approx(np.concatenate(ratios).mean())


def test_what_cispo_cuts_is_counted():
    found, turns = reported(made("cispo", clip_low=0.1, clip_high=0.5), family_group(MU))
    ratios = np.concatenate([np.exp((PI - MU)[ids]) for _, ids, _ in turns])
    assert found["cispo/clipped_tokens"] == pytest.approx(((ratios < 0.9) | (ratios > 1.5)).mean())
    assert found["cispo/ratio"] == pytest.approx(ratios.mean())


def test_what_topr_tapers_is_counted():
    found, turns = reported(made("topr"), family_group(MU))
    weights = np.concatenate(
        [
            np.full(len(ids), min(np.exp((PI - MU)[whole].sum()), 1.0) if a < 0 else 1.0)
            for a, ids, whole in turns
        ]
    )
    assert 0 < (weights < 1).mean() < 1
    assert found["topr/tapered_tokens"] == pytest.approx((weights < 1).mean())
    assert found["topr/weight"] == pytest.approx(weights.mean())


@pytest.mark.parametrize(("options", "left"), [({}, True), ({"kl_weight": 0.1}, False)])
def test_what_topr_tapers_to_nothing_is_masked_unless_a_divergence_reaches_it(options, left):
    algorithm = made("topr", **options)
    batch = batch_of(algorithm, family_group(MU))
    output = algorithm.loss(batch, batch.rollout_logprobs_BT - 40)
    gone_BT = output.masked.get("tapered to 0", torch.zeros_like(batch.loss_mask_BT))
    assert torch.equal(gone_BT, batch.loss_mask_BT & (batch.advantages_BT < 0) & left)
    assert gone_BT.any() == left


# -- accounts -------------------------------------------------------------------------------------------------


def account(algorithm, group, credits):
    """Return the closed ledger of an update; closing it raises where the losses saw something else."""
    batch, ledger = build_batch(group, credits, token_budget=BUDGET)
    monitors = Monitors(skip_zero_credit=not any(credit.every_token for credit in credits))
    monitors.watch(algorithm.loss)(batch, torch.tensor(PI)[batch.tokens_BT])
    return ledger.after_losses(trained=monitors.trained, imitated=monitors.imitated, masked=monitors.masked)


def test_a_turn_without_credit_in_a_masked_chunk_is_counted_once():
    one = trajectory("a", [2, 3, 4], 1.0, ids=count(CONTEXT + 1), mu=MU)
    credit = Credit(np.array([0.0, 1.0, 1.0]), True, np.zeros(3), chunk_K=np.array([0, 0, 0]))
    closed = account(made("ipa", mask_high=1e-9), [one], [credit])
    assert closed.masked == {"zero credit": 2, "chunk mask": 7}
    assert closed.trained == 0


@pytest.mark.parametrize("place", ["loss", "reward"])
def test_an_expert_that_is_imitated_in_part_is_accounted_for_beside_a_divergence(place):
    algorithm = made("grpo", kl_weight=0.1, kl_place=place)
    group = ragged_group(MU)
    credits = [
        replace(c, imitation_K=c.imitation_K * (np.arange(len(t.turns)) > 0)) if t.is_expert else c
        for t, c in zip(group, algorithm.credit(group), strict=True)
    ]
    first = sum(len(t.turns[0].completion_ids) for t in group if t.is_expert and t.reward > 0)
    closed = account(algorithm, group, credits)
    assert closed.masked == {"expert turn not imitated": first}
    assert closed.trained == sum(t.sampled_tokens for t in learners(group))


@pytest.mark.parametrize(("place", "masked"), [("loss", False), ("reward", True)])
def test_what_a_correction_rejects_is_masked_unless_a_divergence_in_the_loss_reaches_it(place, masked):
    options = {"correction": "mis_token", "correction_high": 1.0, "kl_weight": 0.1, "kl_place": place}
    algorithm, group = made("reinforce", **options), ragged_group(MU)
    closed = account(algorithm, group, algorithm.credit(group))
    far = sum(
        int((PI - MU)[turn.completion_ids].__gt__(0).sum()) for t in learners(group) for turn in t.turns
    )
    assert closed.masked.get("correction", 0) == far * masked
    assert far > 0


def test_a_failed_member_makes_no_variance():
    """Its reward is NaN, which equals nothing: the group would be kept, and weigh in every divisor."""
    ids = count(CONTEXT + 1)
    group = [trajectory(str(n), [2], 1.0, ids=ids, mu=MU) for n in range(3)]
    group.append(trajectory("broken", [2], 0.0, ids=ids, mu=MU, failed=True))
    reasons = [credit.dropped for credit in made("dapo").credit(group)]
    assert reasons == ["group without variance"] * 3 + ["failed: policy"]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("chunk_turns", [0, 2])
def test_no_chunk_is_cut_whatever_the_order_of_the_rows(chunk_turns, seed):
    ids = count(200)
    group = ragged_group(MU)
    group += [trajectory(f"w{n}", [1, 2, 1, 3], 1.0, ids=ids, mu=MU, windowed=True) for n in range(3)]
    batch = batch_of(made("ipa", chunk_turns=chunk_turns), group, skip_zero_credit=False)
    order = torch.from_numpy(np.random.default_rng(seed).permutation(len(batch.tokens_BT)))
    values = {each.name: getattr(batch, each.name) for each in fields(batch)}
    rows = {name: value[order] for name, value in values.items() if isinstance(value, torch.Tensor)}
    mixed = replace(batch, **rows)
    seen: dict[int, int] = {}
    for number, part in enumerate(microbatches(mixed, 1)):
        for chunk in part.chunk_index_BT[part.loss_mask_BT].unique().tolist():
            assert seen.setdefault(chunk, number) == number
    assert len(seen) > 5
