"""IPA's `state_mean` baseline against a plain loop over visits."""

from collections import defaultdict
from dataclasses import replace
from itertools import count

import numpy as np
import pytest
from algo_reference import trajectory
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from rock_env.env import observation_hash
from trainer.algo.ipa import Ipa, IPAOptions


def walk(states: str, reward: float, rewards=None):
    """Return a trajectory whose turn k began at the state `states[k]`."""
    path = trajectory(states, [1] * len(states), reward, ids=count(1), turn_rewards=rewards)
    if not states:
        return replace(path, first_observation="z")
    seen = (*states[1:], "end")
    hashes = tuple(observation_hash(state) for state in seen)
    return replace(path, first_observation=states[0], observations=seen, observation_hashes=hashes)


def advantages(group, **options):
    chosen = IPAOptions(baseline="state_mean", **{"neg_weight": 1.0, **options})
    return [credit.advantage_K for credit in Ipa(chosen).credit(group)]


def reference(group, *, gamma: float, trace: float, turn_rewards: bool):
    """Values by fixed-point iteration, each state's the mean over its visits of the trace-weighted return from there."""
    states = [[t.first_observation, *t.observations][: len(t.turns)] for t in group]
    rewards = [list(t.turn_rewards) if turn_rewards else [0.0] * len(t.turns) for t in group]
    for t, own in zip(group, rewards, strict=True):
        if own:
            own[-1] += max(t.reward, 0.0)
    value: dict[str, float] = defaultdict(float)
    for _ in range(400):
        visits = defaultdict(list)
        targets = []
        for path, own in zip(states, rewards, strict=True):
            after, ahead, target = 0.0, 0.0, []
            for state, reward in zip(reversed(path), reversed(own), strict=True):
                after = reward + gamma * (trace * after + (1 - trace) * ahead)
                ahead = value[state]
                target.insert(0, after)
                visits[state].append(after)
            targets.append(target)
        value.update({state: sum(seen) / len(seen) for state, seen in visits.items()})
    return [
        [after - value[state] for state, after in zip(path, target, strict=True)]
        for path, target in zip(states, targets, strict=True)
    ]


@settings(max_examples=60)
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
        np.testing.assert_allclose(mine, theirs, atol=1e-9)


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


def test_bootstrapped_values_use_what_others_met_in_the_same_state():
    """Sutton's example: a led to b and failed, b alone won 6 of 7 times. By returns a is worth 0, by transitions 3/4."""
    group = [walk("ab", 0.0), walk("b", 0.0), *(walk("b", 1.0) for _ in range(6))]
    mean, bootstrapped = (advantages(group, gamma=1.0, state_trace=trace) for trace in (1.0, 0.0))
    np.testing.assert_allclose(mean[0], [0.0, -0.75])
    np.testing.assert_allclose(bootstrapped[0], [0.0, -0.75])
    returning = [*group, walk("ac", 1.0), walk("c", 1.0)]
    left, right = (advantages(returning, gamma=1.0, state_trace=0.0)[i][0] for i in (0, 8))
    assert (left, right) == pytest.approx((-0.125, 0.125))
    left, right = (advantages(returning, gamma=1.0)[i][0] for i in (0, 8))
    assert (left, right) == pytest.approx((-0.5, 0.5))


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
