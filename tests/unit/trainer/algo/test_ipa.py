"""IPA's credit and loss, against the reference and against what it must reduce to."""

from __future__ import annotations

from dataclasses import replace
from itertools import count, product

import numpy as np
import pytest
import torch
from algo_reference import (
    BUDGET,
    CONTEXT,
    check,
    computed,
    ipa_reference,
    learners,
    ragged_group,
    tables,
    trajectory,
)
from pydantic import ValidationError

from agent_runtime.types import TurnFault
from trainer.algo.ipa import IPA, Ipa, IPAOptions
from trainer.algo.terms.monitors import Monitors
from trainer.data.build import build_batch


@pytest.mark.parametrize(
    ("baseline", "turn_rewards", "chunk_turns", "negatives"),
    list(
        product(
            ["none", "group_mean", "leave_one_out"],
            [False, True],
            [0, 1, 2],
            [(0.0, 0.0), (0.0, 0.5), (-1.0, 1.0)],
        )
    ),
)
def test_equals_the_reference(baseline, turn_rewards, chunk_turns, negatives):
    if negatives == (0.0, 0.5) and baseline == "none" and not turn_rewards:
        negatives = (-0.2, 0.5)  # a failure's return is 0 otherwise, and its weight refused
    options = IPAOptions(
        baseline=baseline,
        turn_rewards=turn_rewards,
        chunk_turns=chunk_turns,
        reward_fail=negatives[0],
        neg_weight=negatives[1],
        mask_high=1.6,
        mask_low=0.6,
        lambda_rl=0.7,
        lambda_il=0.3,
        gamma=0.8,
    )
    check(Ipa(options), ipa_reference)


@pytest.mark.parametrize("behaviour", ["stored", "snapshots", "paper"])
@pytest.mark.parametrize("chunk_turns", [0, 1, 2])
@pytest.mark.parametrize("bounds", [(0.0, float("inf")), (0.8, 1.2), (0.9, float("inf")), (0.0, 1.1)])
def test_every_behaviour_mode_equals_the_reference(behaviour, chunk_turns, bounds):
    options = IPAOptions(
        behaviour=behaviour,
        chunk_turns=chunk_turns,
        mask_low=bounds[0],
        mask_high=bounds[1],
        reward_fail=-1,
        neg_weight=0.7,
        baseline="leave_one_out",
    )
    check(Ipa(options), ipa_reference)


@pytest.mark.parametrize("behaviour", ["snapshots", "paper"])
def test_a_mode_that_needs_pi_old_refuses_a_batch_without_it(behaviour):
    algorithm = Ipa(IPAOptions(behaviour=behaviour))
    group = ragged_group(tables()[0])
    batch, _ = build_batch(group, algorithm.credit(group), token_budget=BUDGET)
    with pytest.raises(ValueError, match=f"behaviour='{behaviour}' needs old_logprobs_BT"):
        algorithm.loss(batch, torch.tensor(tables()[2])[batch.tokens_BT])


def test_pi_old_is_needed_by_the_modes_that_say_so():
    assert Ipa(IPAOptions()).snapshots == 0
    for behaviour in ("snapshots", "paper"):
        assert Ipa(IPAOptions(behaviour=behaviour)).snapshots == 5
        assert Ipa(IPAOptions(behaviour=behaviour, snapshots_kept=2)).snapshots == 2


def test_defaults_equal_the_reference():
    check(IPA.build(IPAOptions()), ipa_reference)


def test_one_chunk_undiscounted_unmasked_and_positive_is_weighted_fine_tuning():
    mu, prox, pi = tables()
    group = [t for t in ragged_group(mu) if t.failure is None and t.reward > 0 and not t.is_expert]
    _, grad = computed(Ipa(IPAOptions(gamma=1, chunk_turns=0, mask_high=float("inf"))), group, prox, pi)
    wanted = np.zeros_like(grad)
    for t in group:
        for turn in t.turns:
            wanted[turn.completion_ids] = -t.reward / (len(group) * BUDGET)
    np.testing.assert_allclose(grad, wanted, rtol=1e-6)


def test_returns_discount_by_chunk_from_the_end():
    group = [trajectory("a", [1, 1, 1], 2.0, ids=count(CONTEXT), mu=tables()[0])]
    (credit,) = Ipa(IPAOptions(gamma=0.5)).credit(group)
    np.testing.assert_array_equal(credit.advantage_K, [0.5, 1.0, 2.0])
    (merged,) = Ipa(IPAOptions(gamma=0.5, chunk_turns=2)).credit(group)
    np.testing.assert_array_equal(merged.advantage_K, [1.0, 1.0, 2.0])


def test_faulty_turns_of_a_success_can_be_left_out():
    made = trajectory("a", [1, 1, 1], 2.0, ids=count(CONTEXT), mu=tables()[0])
    made = replace(made, turn_faults=(TurnFault.NONE, TurnFault.UNDONE, TurnFault.NONE))
    (credit,) = Ipa(IPAOptions(gamma=0.5)).credit([made])
    np.testing.assert_array_equal(credit.advantage_K, [0.5, 1.0, 2.0])
    (credit,) = Ipa(IPAOptions(gamma=0.5, learn_faulty=False)).credit([made])
    np.testing.assert_array_equal(credit.advantage_K, [0.5, 0.0, 2.0])
    failed = replace(made, reward=0.0, passed=False)
    (credit,) = Ipa(IPAOptions(gamma=0.5, learn_faulty=False, neg_weight=1, reward_fail=-1)).credit([failed])
    np.testing.assert_array_equal(credit.advantage_K, [-0.25, -0.5, -1.0])


def test_failures_leave_no_negative_branch_by_default():
    mu, _, _ = tables()
    group = ragged_group(mu, experts=False)
    for t, credit in zip(group, Ipa(IPAOptions()).credit(group), strict=True):
        if t.failure is None and t.reward <= 0:
            assert not credit.advantage_K.any()
            assert not credit.positive


def test_sign_is_of_the_raw_outcome_not_of_the_advantage():
    mu, _, _ = tables()
    group = ragged_group(mu, experts=False)
    credits = Ipa(IPAOptions(baseline="group_mean")).credit(group)
    by_name = {t.id: c for t, c in zip(group, credits, strict=True)}
    assert by_name["one token"].positive
    assert by_name["one token"].advantage_K[0] < 0


def test_a_positive_below_its_baseline_is_clipped_like_a_negative():
    mu, _, _ = tables()
    group = ragged_group(mu, experts=False)
    algorithm = Ipa(IPAOptions(baseline="group_mean", mask_high=float("inf")))
    (token,) = group[3].turns[0].completion_ids
    far, near = tables()[2].copy(), tables()[2].copy()
    far[token], near[token] = mu[token] - 3, mu[token] + 3
    _, pushed = computed(algorithm, group, mu, near)
    _, shielded = computed(algorithm, group, mu, far)
    assert shielded[token] / pushed[token] == pytest.approx(np.exp(-3), rel=1e-6)


def metrics_of(prox, pi, **options):
    mu, _, _ = tables()
    group = ragged_group(mu, experts=False)
    algorithm = Ipa(IPAOptions(reward_fail=-1, neg_weight=1, **options))
    batch, _ = build_batch(group, algorithm.credit(group), token_budget=BUDGET)
    if prox is not None:
        batch = replace(batch, prox_logprobs_BT=torch.tensor(prox)[batch.tokens_BT])
    monitors = Monitors()
    monitors.watch(algorithm.loss)(batch, torch.tensor(pi)[batch.tokens_BT])
    return monitors.metrics()


def test_ratios_are_measured_against_sampling_not_recomputed():
    """The known defect: 'old' probabilities recomputed with current weights make every ratio 1."""
    mu, prox, pi = tables()
    stale = metrics_of(prox, pi)
    assert abs(stale["mismatch/chunk_mean"] - 1) > 0.02
    assert abs(stale["ratio/chunk_mean"] - stale["mismatch/chunk_mean"]) > 0.02
    alone = metrics_of(None, pi)
    assert alone["mismatch/chunk_mean"] == pytest.approx(alone["ratio/chunk_mean"], rel=1e-12)
    assert abs(alone["mismatch/chunk_mean"] - 1) > 0.02
    fresh = metrics_of(None, mu)
    assert fresh["mismatch/chunk_mean"] == pytest.approx(1, abs=1e-9)
    assert fresh["kl/k1"] == pytest.approx(0, abs=1e-9)


def test_masking_counts_whole_chunks_and_never_inflates_survivors():
    mu, prox, pi = tables()
    group = ragged_group(mu, experts=False)
    open_, masked = (Ipa(IPAOptions(mask_high=high)) for high in (float("inf"), 1.1))
    _, all_kept = computed(open_, group, prox, pi)
    _, some_kept = computed(masked, group, prox, pi)
    survivors = some_kept != 0
    assert 0 < survivors.sum() < (all_kept != 0).sum()
    np.testing.assert_array_equal(some_kept[survivors], all_kept[survivors])
    for t in learners(group):
        for turn in t.turns:
            assert len(set(survivors[turn.completion_ids])) <= 1
    assert 0 < metrics_of(prox, pi, mask_high=1.1)["mask/chunk_share"] < 1


def test_an_overflowing_ratio_is_masked_or_clipped_never_nan():
    mu, _, pi = tables()
    group = ragged_group(mu, experts=False)
    far = mu + 5000
    for high in (5.0, float("inf")):
        loss, grad = computed(Ipa(IPAOptions(reward_fail=-1, neg_weight=1, mask_high=high)), group, far, pi)
        assert np.isfinite(loss)
        assert np.isfinite(grad).all()


def test_options_refuse_the_impossible():
    for bad in (
        {"gamma": 0},
        {"gamma": 1.1},
        {"reward_fail": 0.5},
        {"mask_high": 0},
        {"neg_weight": -1},
        {"neg_weight": 1},
        {"mask_low": 6},
        {"behaviour": "current"},
        {"snapshots_kept": 2},
        {"snapshots_kept": 0, "behaviour": "paper"},
        {"reward_fail": -1},
    ):
        with pytest.raises(ValidationError):
            IPAOptions(**bad)
