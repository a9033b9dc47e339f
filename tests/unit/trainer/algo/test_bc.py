"""Behaviour cloning learns from successful experts only."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest
from algo_reference import bc_reference, check, computed, ragged_group, tables, winners

from trainer.algo.bc import BC, Bc, BCOptions
from trainer.algo.terms.loss import Aggregation


@pytest.mark.parametrize("aggregation", get_args(Aggregation))
def test_equals_the_reference(aggregation):
    check(Bc(BCOptions(aggregation=aggregation)), bc_reference)


def test_its_default_is_the_mean_negative_log_likelihood_of_the_experts():
    mu, _, pi = tables()
    group = ragged_group(mu)
    loss, _ = computed(BC.build(BCOptions()), group, None, pi)
    tokens = np.concatenate([turn.completion_ids for t in winners(group) for turn in t.turns])
    assert loss == pytest.approx(-pi[tokens].mean(), rel=1e-12)


def test_every_dropped_trajectory_says_why():
    group = ragged_group(tables()[0])
    reasons = {t.id: c.dropped for t, c in zip(group, Bc(BCOptions()).credit(group), strict=True)}
    assert reasons["long"] == "imitation only"
    assert reasons["broken"] == "failed: policy"
    assert reasons["failed expert"] == "expert without success"
    assert reasons["expert"] == ""
