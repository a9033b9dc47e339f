"""Expected values are worked out by hand, beside each."""

from __future__ import annotations

import math

import pytest

from benchmarks.statistics import bootstrap, iqm, mean_interval, paired_differences, success_at


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0.7], 0.7),
        ([0.0, 0.3, 0.9], 0.4),  # 3 // 4 = 0 cut off
        ([9.0, 1.0, 2.0, -5.0], 1.5),  # 1 at either end
        ([0.1, 100.0, 0.2, 0.6, 0.4], 0.4),  # of 0.1 0.2 0.4 0.6 100 the middle three
        ([8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0, -90.0], 4.5),  # 2 at either end: 3 4 5 6
    ],
)
def test_iqm_averages_what_is_between_the_quartiles(values: list[float], expected: float) -> None:
    assert iqm(values) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("values", [[], [0.5, math.nan], [math.inf]])
def test_a_run_without_a_number_is_refused_not_counted_as_zero(values: list[float]) -> None:
    with pytest.raises(ValueError, match=r"at least one number|finite"):
        iqm(values)
    with pytest.raises(ValueError, match=r"at least one number|finite"):
        bootstrap([[0.5], values])


def test_bootstrap_of_equal_values_has_no_width() -> None:
    found = bootstrap([[0.25] * 5])
    assert (found.estimate, found.low, found.high) == (0.25, 0.25, 0.25)


def test_bootstrap_of_two_values_reaches_both_ends() -> None:
    # A mean of two draws from {0, 1} is 0, 0.5, 1 with 1/4, 1/2, 1/4: 95 % spans all, the middle 40 % is 0.5 alone.
    wide, narrow = bootstrap([[0.0, 1.0]]), bootstrap([[0.0, 1.0]], confidence=0.4)
    assert (wide.estimate, wide.low, wide.high) == (0.5, 0.0, 1.0)
    assert (narrow.low, narrow.high) == (0.5, 0.5)
    middle = bootstrap(
        [[0.0, 1.0]], confidence=0.6
    )  # its ends at 0.2 and 0.8 still lie in the outer quarters
    assert (middle.low, middle.high) == (0.0, 1.0)


def test_bootstrap_never_draws_across_strata() -> None:
    # Each stratum gives its two equal values, always: 0 0 1 1, of which the middle two average 0.5. Drawn across, 0 to 1.
    found = bootstrap([[0.0, 0.0], [1.0, 1.0]])
    assert (found.estimate, found.low, found.high) == (0.5, 0.5, 0.5)


def test_bootstrap_repeats_with_its_seed() -> None:
    values = [[0.1, 0.5, 0.2, 0.9, 0.4]]
    assert bootstrap(values, seed=3) == bootstrap(values, seed=3)


def test_differences_are_paired_by_key_and_unpaired_keys_left_out() -> None:
    found = paired_differences({100: 0.5, 101: 0.9, 102: 0.1}, {102: 0.4, 100: 0.25, 103: 1.0})
    assert found == {100: 0.25, 102: pytest.approx(-0.3)}


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
    # As above: means of two draws from {0, 1} are 0, 0.5 and 1.
    found = mean_interval([0.0, 1.0])
    assert (found.estimate, found.low, found.high) == (0.5, 0.0, 1.0)
    assert mean_interval([0.0, 1.0], confidence=0.4).low == 0.5
    with pytest.raises(ValueError, match="at least one number"):
        mean_interval([])
