"""GRPO against the reference, and what it must reduce to."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest
from algo_reference import check, computed, ragged_group, tables
from family_reference import clipping_reference as grpo_reference

from trainer.algo.grpo import GRPO, Grpo, GRPOOptions
from trainer.algo.reinforce import Reinforce, REINFORCEOptions
from trainer.algo.terms.loss import Aggregation


@pytest.mark.parametrize("aggregation", get_args(Aggregation))
@pytest.mark.parametrize("normalize_std", [True, False])
def test_equals_the_reference(aggregation, normalize_std):
    options = GRPOOptions(
        aggregation=aggregation, normalize_std=normalize_std, clip_low=0.1, clip_high=0.3, lambda_il=0.4
    )
    check(Grpo(options), grpo_reference)


def test_defaults_equal_the_reference():
    check(GRPO.build(GRPOOptions()), grpo_reference)


def test_is_reinforce_where_nothing_is_stale():
    mu, _, _ = tables()
    group = ragged_group(mu)
    _, grpo = computed(Grpo(GRPOOptions(normalize_std=False, aggregation="constant")), group, None, mu)
    _, reinforce = computed(Reinforce(REINFORCEOptions(baseline="group_mean")), group, None, mu)
    np.testing.assert_allclose(grpo, reinforce, rtol=1e-6, atol=1e-12)


def test_failed_rollouts_do_not_move_the_advantages():
    group = ragged_group(tables()[0], experts=False)
    survivors = [t for t in group if t.failure is None]
    with_failures = [c.advantage_K for c in Grpo(GRPOOptions()).credit(group) if not c.dropped]
    without = [c.advantage_K for c in Grpo(GRPOOptions()).credit(survivors)]
    for one, other in zip(with_failures, without, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_group_without_variance_gives_no_signal():
    group = [t for t in ragged_group(tables()[0], experts=False) if t.reward == 0]
    assert len(group) == 2
    assert all(not c.advantage_K.any() for c in Grpo(GRPOOptions()).credit(group))


def test_a_lone_survivor_gives_no_signal():
    (credit,) = Grpo(GRPOOptions()).credit(ragged_group(tables()[0])[:1])
    np.testing.assert_array_equal(credit.advantage_K, np.zeros(4))


def test_prox_is_not_mistaken_for_the_policy_that_sampled():
    mu, prox, pi = tables()
    group = ragged_group(mu)
    one, other = (computed(Grpo(GRPOOptions()), group, p, pi) for p in (prox, None))
    assert one[0] == other[0]
    np.testing.assert_array_equal(one[1], other[1])
