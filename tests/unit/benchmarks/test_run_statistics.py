"""Expected values are worked out by hand, beside each."""

from __future__ import annotations

import math

import pytest

from benchmarks.statistics import mean_interval, success_at


@pytest.mark.parametrize("values", [[], [0.5, math.nan], [math.inf]])
def test_a_run_without_a_number_is_refused_not_counted_as_zero(values: list[float]) -> None:
    with pytest.raises(ValueError, match=r"at least one number|finite"):
        mean_interval(values)


def test_bootstrap_of_equal_values_has_no_width() -> None:
    found = mean_interval([0.25] * 5)
    assert (found.estimate, found.low, found.high) == (0.25, 0.25, 0.25)


def test_bootstrap_repeats_with_its_seed() -> None:
    values = [0.1, 0.5, 0.2, 0.9, 0.4]
    assert mean_interval(values, seed=3) == mean_interval(values, seed=3)


def test_success_is_read_between_evaluations_and_never_beyond_the_last() -> None:
    curve = [(0.0, 0.1), (100.0, 0.3), (300.0, 0.7)]
    assert success_at(curve, 150) == pytest.approx(0.4)  # a quarter of the way from 0.3 to 0.7
    assert success_at(curve, 300) == 0.7
    assert success_at(curve, 301) is None


def test_a_curve_that_goes_back_is_refused() -> None:
    with pytest.raises(ValueError, match="must not fall"):
        success_at([(10.0, 0.1), (5.0, 0.2)], 7)
    with pytest.raises(ValueError, match="empty"):
        success_at([], 7)


def test_the_interval_of_a_mean_is_that_of_its_draws() -> None:
    # A mean of two draws from {0, 1} is 0, 0.5, 1 with 1/4, 1/2, 1/4: 95 % spans all, the middle 40 % is 0.5 alone.
    found = mean_interval([0.0, 1.0])
    assert (found.estimate, found.low, found.high) == (0.5, 0.0, 1.0)
    assert mean_interval([0.0, 1.0], confidence=0.4).low == 0.5
