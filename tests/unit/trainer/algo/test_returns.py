"""Chunk returns and group baselines."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from trainer.algo.terms.returns import baselines, chunk_of_turn, chunk_returns

unit = st.floats(-3, 3)


@given(final=unit, gamma=st.floats(0.1, 1), rewards=arrays(np.float64, st.integers(0, 30), elements=unit))
def test_returns_satisfy_their_recursion(final, gamma, rewards):
    returns = chunk_returns(final, len(rewards), gamma, rewards)
    following = final
    for k in reversed(range(len(rewards))):
        following = rewards[k] + (gamma * following if k < len(rewards) - 1 else final)
        assert returns[k] == pytest.approx(following, abs=1e-9)


@given(final=unit, chunks=st.integers(0, 60), gamma=st.floats(0.1, 1))
def test_without_turn_rewards_the_return_is_the_discounted_outcome(final, chunks, gamma):
    wanted = [gamma ** (chunks - k) * final for k in range(1, chunks + 1)]
    np.testing.assert_allclose(chunk_returns(final, chunks, gamma), wanted, rtol=1e-12)


def test_consecutive_turns_merge_into_chunks():
    assert chunk_of_turn(5, 1).tolist() == [0, 1, 2, 3, 4]
    assert chunk_of_turn(5, 2).tolist() == [0, 0, 1, 1, 2]
    assert chunk_of_turn(5, 0).tolist() == [0] * 5
    assert chunk_of_turn(0, 0).tolist() == []


@given(arrays(np.float64, st.integers(2, 20), elements=unit))
def test_leave_one_out_never_sees_its_own_score(scores):
    changed = scores.copy()
    changed[0] += 100
    assert baselines(changed, "leave_one_out")[0] == pytest.approx(
        baselines(scores, "leave_one_out")[0], abs=1e-9
    )


@given(arrays(np.float64, st.integers(2, 20), elements=unit))
def test_baselined_scores_sum_to_zero(scores):
    for kind in ("group_mean", "leave_one_out"):
        assert (scores - baselines(scores, kind)).sum() == pytest.approx(0, abs=1e-9)


@given(unit, st.integers(1, 20))
def test_equal_scores_leave_nothing_not_even_a_rounding_error(score, count):
    """What is exactly 0 has no gradient and is counted as zero credit; 1e-17 would be trained on."""
    scores = np.full(count, score)
    for kind in ("group_mean", "leave_one_out"):
        assert not (scores - baselines(scores, kind)).any()


def test_a_score_without_peers_is_its_own_baseline():
    for kind in ("group_mean", "leave_one_out"):
        assert baselines(np.array([0.7]), kind).tolist() == [0.7]
        assert baselines(np.zeros(0), kind).tolist() == []
    assert baselines(np.array([0.7]), "none").tolist() == [0.0]
