"""IPA's `state_mean` baseline against a plain loop over visits."""

from collections import defaultdict
from dataclasses import replace
from itertools import count

import numpy as np
import pytest
from algo_reference import trajectory
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from trainer.algo.ipa import Ipa, IPAOptions


def walk(states: str, reward: float, rewards=None):
    """Return a trajectory whose turn k began at the state `states[k]`."""
    path = trajectory(states, [1] * len(states), reward, ids=count(1), turn_rewards=rewards)
    if not states:
        return replace(path, first_observation="z")
    return replace(path, first_observation=states[0], observations=(*states[1:], "end"))


def advantages(group, **options):
    chosen = IPAOptions(baseline="state_mean", **{"neg_weight": 1.0, **options})
    return [credit.advantage_K for credit in Ipa(chosen).credit(group)]


def reference(group, *, gamma: float, trace: float, turn_rewards: bool):
    """Every visit by itself: returns, state means, then the sum of discounted one-step advantages."""
    returns, visits = [], defaultdict(list)
    states = [[t.first_observation, *t.observations][: len(t.turns)] for t in group]
    outcomes = [t.reward if t.reward > 0 else 0.0 for t in group]
    for t, outcome, path in zip(group, outcomes, states, strict=True):
        after, own = 0.0, []
        for k in reversed(range(len(t.turns))):
            after = gamma * after + (t.turn_rewards[k] if turn_rewards else 0.0)
            after += outcome if k == len(t.turns) - 1 else 0.0
            own.insert(0, after)
            visits[path[k]].append(after)
        returns.append(own)
    value = {state: sum(seen) / len(seen) for state, seen in visits.items()}
    result = []
    for t, outcome, path in zip(group, outcomes, states, strict=True):
        n, steps = len(t.turns), []
        for k in range(n):
            reward = t.turn_rewards[k] if turn_rewards else 0.0
            ahead = outcome if k == n - 1 else gamma * value[path[k + 1]]
            steps.append(reward + ahead - value[path[k]])
        result.append([sum((gamma * trace) ** (j - k) * steps[j] for j in range(k, n)) for k in range(n)])
    return result


@given(
    st.lists(
        st.tuples(st.text("abc", max_size=6), st.sampled_from([0.0, 0.0, 1.0, 2.0])), min_size=1, max_size=5
    ),
    st.sampled_from([1.0, 0.9, 0.5]),
    st.sampled_from([1.0, 0.7, 0.0]),
    st.booleans(),
)
def test_equals_the_loop_over_visits(paths, gamma, trace, turn_rewards):
    group = [walk(states, reward, [0.5 * k - 1 for k in range(len(states))]) for states, reward in paths]
    got = advantages(group, gamma=gamma, state_trace=trace, turn_rewards=turn_rewards)
    wanted = reference(group, gamma=gamma, trace=trace, turn_rewards=turn_rewards)
    for mine, theirs in zip(got, wanted, strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-12)


def test_with_a_full_trace_a_turn_is_compared_with_its_state():
    group = [walk("ab", 1.0), walk("ab", 0.0), walk("b", 1.0)]
    (first, second, third) = advantages(group, gamma=1.0)
    np.testing.assert_allclose(first, [0.5, 1 / 3])
    np.testing.assert_allclose(second, [-0.5, -2 / 3])
    np.testing.assert_allclose(third, [1 / 3])


def test_without_a_trace_blame_stays_where_the_value_fell():
    """Both go a to b; what b led to is not a's merit or fault."""
    group = [walk("ab", 1.0), walk("ab", 0.0)]
    (first, second) = advantages(group, gamma=1.0, state_trace=0.0)
    np.testing.assert_allclose(first, [0.0, 0.5])
    np.testing.assert_allclose(second, [0.0, -0.5])


def test_a_state_visited_once_gives_no_signal_by_itself():
    (alone,) = advantages([walk("abc", 1.0)], gamma=0.9)
    np.testing.assert_allclose(alone, [0, 0, 0], atol=1e-12)


def test_chunks_of_several_turns_are_compared_where_they_begin():
    group = [walk("abcd", 1.0), walk("axcy", 0.0)]
    (first, second) = advantages(group, gamma=1.0, chunk_turns=2)
    np.testing.assert_allclose(first, [0.5, 0.5, 0.5, 0.5])
    np.testing.assert_allclose(second, [-0.5, -0.5, -0.5, -0.5])


def test_a_trace_without_state_means_is_refused():
    with pytest.raises(ValidationError, match="state_trace has no effect"):
        IPAOptions(baseline="leave_one_out", state_trace=0.5)
