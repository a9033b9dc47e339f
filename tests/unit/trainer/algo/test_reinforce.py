"""REINFORCE against the reference, and its leave-one-out identity."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from algo_reference import check, ragged_group, tables
from family_reference import reinforce_family_reference as reinforce_reference

from trainer.algo.reinforce import REINFORCE, Reinforce, REINFORCEOptions


@pytest.mark.parametrize(
    ("baseline", "gamma"), list(product(["none", "group_mean", "leave_one_out"], [1.0, 0.7]))
)
def test_equals_the_reference(baseline, gamma):
    check(Reinforce(REINFORCEOptions(baseline=baseline, gamma=gamma, lambda_il=0.2)), reinforce_reference)


def test_defaults_equal_the_reference():
    check(REINFORCE.build(REINFORCEOptions()), reinforce_reference)


def test_leave_one_out_is_the_group_mean_stretched_by_n_over_n_minus_1():
    group = [t for t in ragged_group(tables()[0], experts=False) if t.failure is None]
    mean, rest = (
        Reinforce(REINFORCEOptions(baseline=kind)).credit(group) for kind in ("group_mean", "leave_one_out")
    )
    n = len(group)
    for one, other in zip(mean, rest, strict=True):
        np.testing.assert_allclose(other.advantage_K, one.advantage_K * n / (n - 1), rtol=1e-12)
