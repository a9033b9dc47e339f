"""Prefix values: the bound on a rise, where it is applied, and which rollouts count at which anchors."""

from __future__ import annotations

import math
from itertools import product

import pytest
from anchor_cases import expert, played
from hypothesis import given
from hypothesis import strategies as st

from agent_runtime.types import PrefixTurn, Start
from trainer.rollout.starts import stood_at
from trainer.rollout.values import Tally, crucial_turns, jumps, rise_bound


def tally(passed: float, rollouts: float) -> Tally:
    return Tally(passed, rollouts)


@pytest.mark.parametrize("n", [8, 16])
def test_the_bound_holds_in_nine_of_ten_samples(n):
    """Exact coverage by enumeration of both binomials: near 90 % on the mean, never far below."""
    bounds = {(a, b): rise_bound(tally(a, n), tally(b, n)) for a, b in product(range(n + 1), repeat=2)}

    def chance(k: int, p: float) -> float:
        return math.comb(n, k) * p**k * (1 - p) ** (n - k)

    grid = [0.02, 0.1, 0.3, 0.5, 0.7, 0.9, 0.98]
    covered = [
        sum(chance(a, low) * chance(b, high) for (a, b), bound in bounds.items() if bound <= high - low)
        for low, high in product(grid, repeat=2)
    ]
    assert min(covered) > 0.8
    assert 0.88 < sum(covered) / len(covered) < 0.96


@given(st.integers(0, 30), st.integers(0, 30), st.integers(8, 30), st.integers(8, 30))
def test_the_bound_is_below_the_estimate_and_rises_with_it(a, b, n, m):
    a, b = min(a, n), min(b, m)
    bound = rise_bound(tally(a, n), tally(b, m))
    assert -1 - 1e-9 <= bound <= b / m - a / n
    if b < m:
        assert rise_bound(tally(a, n), tally(b + 1, m)) > bound
    assert rise_bound(tally(a, n), None) >= bound
    assert rise_bound(tally(4 * a, 4 * n), tally(4 * b, 4 * m)) >= bound - 1e-9, "more of the same is surer"


def test_a_fork_needs_the_lower_bound_above_a_fifth_and_eight_rollouts_on_both_sides():
    assert crucial_turns({2: tally(0, 8), 3: tally(8, 8)}, 6) == [2]
    assert crucial_turns({2: tally(3, 8), 3: tally(5, 8)}, 6) == []
    assert crucial_turns({2: tally(0, 7), 3: tally(8, 8)}, 6) == []
    assert crucial_turns({2: tally(0, 8), 3: tally(7, 7)}, 6) == []
    # 35 % more, surely; but the bound is what counts: 0.2 is reached only with more rollouts.
    assert crucial_turns({2: tally(8, 20), 3: tally(15, 20)}, 4) == []
    assert crucial_turns({2: tally(40, 100), 3: tally(75, 100)}, 4) == [2, 3][:1]


def test_the_last_turn_is_crucial_where_success_from_it_is_rare():
    assert crucial_turns({4: tally(0, 8)}, 5) == [4]
    assert crucial_turns({4: tally(7, 8)}, 5) == []


def test_a_jump_over_several_turns_is_no_crucial_turn_yet():
    tallies = {0: tally(0, 8), 4: tally(8, 8)}
    assert jumps(tallies, 8) == [(0, 4)]
    assert crucial_turns(tallies, 8) == []
    assert jumps({**tallies, 2: tally(0, 8), 3: tally(8, 8)}, 8) == [(2, 3)]


def test_old_counts_weigh_half_and_the_gate_does_not_forget():
    old = Tally(6, 8, dry=3)
    old.forget()
    assert (old.passed, old.rollouts, old.dry) == (3, 4, 3)


@given(st.integers(0, 50), st.integers(0, 50))
def test_spread_is_the_posterior_mean_of_success_times_failure(passed, failed):
    """Against the integral over the Beta posterior by Simpson's rule."""
    n = 2000
    grid = [i / n for i in range(n + 1)]
    simpson = [1, *([4, 2] * (n // 2))[:-1], 1]
    density = [s**passed * (1 - s) ** failed for s in grid]
    total = sum(w * d for w, d in zip(simpson, density, strict=True))
    mean = sum(w * d * s * (1 - s) for w, d, s in zip(simpson, density, grid, strict=True)) / total
    assert tally(passed, passed + failed).spread == pytest.approx(mean, rel=1e-3)


# -- which rollouts count where -------------------------------------------------------------------------------


@given(st.integers(0, 4), st.integers(0, 5))
def test_a_rollout_counts_where_it_stood_and_went_on_by_itself(anchor, follows):
    one = expert("e")
    start = Start(7, "o0", one.turns[:anchor], 1) if anchor else None
    actions = [f"a{turn}" for turn in range(anchor, min(5, anchor + follows))]
    left = anchor + len(actions)
    stood = stood_at(one, played([*actions, "x"] if left < 5 else actions, passed=True, start=start))
    assert list(stood) == list(range(anchor, min(left, 4) + 1))


def test_another_history_counts_nowhere():
    one = expert("e")
    elsewhere = Start(7, "o0", (PrefixTurn("b", "o1"), *one.turns[1:2]), 1)
    assert list(stood_at(one, played(["a2"], passed=True, start=elsewhere))) == []
    begun = Start(7, "another", one.turns[:1], 1)
    assert list(stood_at(one, played(["a1"], passed=True, start=begun))) == []
