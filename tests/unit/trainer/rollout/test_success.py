"""Intervals of a success rate and pass@k: against closed forms, exhaustive counting and drawn worlds."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest
from anchor_cases import played

from trainer.metrics import Interval
from trainer.rollout.success import combined, interval_of, pass_at, passed_by_task, powers_up_to


def once(passed: int, tasks: int) -> list[list[bool]]:
    return [[n < passed] for n in range(tasks)]


@pytest.mark.parametrize(
    ("passed", "tasks", "low", "high"),
    [
        (8, 10, 0.4902, 0.9433),
        (10, 10, 0.7225, 1.0),
        (0, 300, 0.0, 0.0126),
        (288, 300, 0.9314, 0.9770),
        (1, 1, 0.2065, 1.0),
    ],
)
def test_of_one_episode_a_task_the_interval_is_wilsons(passed, tasks, low, high):
    assert interval_of(once(passed, tasks)) == pytest.approx((low, high), abs=5e-5)


def test_ends_of_certain_success_are_exact():
    assert interval_of(once(7, 7)).high == 1
    assert interval_of(once(0, 7)).low == 0


def test_episodes_that_repeat_each_other_tell_no_more_than_one():
    assert interval_of([each * 8 for each in once(30, 40)]) == pytest.approx(interval_of(once(30, 40)))
    assert interval_of([each * 8 for each in once(40, 40)]) == pytest.approx(interval_of(once(40, 40)))


def test_episodes_that_do_not_hang_together_all_count():
    alike = [[True, False]] * 50
    assert interval_of(alike) == pytest.approx(interval_of(once(50, 100)))
    random = np.random.default_rng(0)
    luck = interval_of((random.random((200, 8)) < 0.6).tolist())
    assert luck.high - luck.low == pytest.approx(2 * 1.96 * math.sqrt(0.24 / 1600), rel=0.15)


@pytest.mark.parametrize(("tasks", "samples"), [(60, 1), (60, 4), (200, 4)])
@pytest.mark.parametrize("mean", [0.3, 0.9])
def test_the_interval_holds_the_truth_as_often_as_it_says(tasks, samples, mean):
    """Tasks differ in difficulty (a beta distribution): of 1,000 evaluations about 95 % cover the mean over all tasks."""
    random, covered = np.random.default_rng(1), 0
    for _ in range(1000):
        difficulty = random.beta(mean, 1 - mean, tasks)
        interval = interval_of((random.random((tasks, samples)) < difficulty[:, None]).tolist())
        covered += interval.low <= mean <= interval.high
    assert 0.925 <= covered / 1000 <= 0.985


@pytest.mark.parametrize("passed", [0, 1, 500, 1000])
def test_however_often_one_task_is_tried_it_says_little_of_others(passed):
    interval = interval_of([[n < passed for n in range(1000)]])
    assert interval.high - interval.low > 0.75
    assert interval.low <= passed / 1000 <= interval.high


def test_success_on_nothing_has_no_interval():
    with pytest.raises(ValueError, match="no episode has a verdict"):
        interval_of([])


@pytest.mark.parametrize(("n", "c", "k"), [(4, 1, 1), (4, 1, 2), (6, 2, 3), (5, 0, 2), (5, 5, 5), (5, 3, 4)])
def test_pass_at_k_is_the_share_of_choices_with_a_success(n, c, k):
    episodes = [i < c for i in range(n)]
    chosen = [any(choice) for choice in combinations(episodes, k)]
    assert pass_at(k, [episodes]) == pytest.approx(sum(chosen) / len(chosen))


def test_pass_at_k_is_the_mean_over_tasks_that_have_so_many():
    assert pass_at(2, [[True, False], [False, False], [True]]) == 0.5
    assert math.isnan(pass_at(3, [[True, False]]))


def test_the_k_are_powers_of_two_and_the_number_of_samples():
    assert [powers_up_to(n) for n in (0, 1, 2, 6, 8)] == [(), (1,), (1, 2), (1, 2, 4, 6), (1, 2, 4, 8)]


def test_the_mixture_of_independent_successes_is_surer_than_its_parts():
    part = interval_of(once(30, 60))
    assert combined([(1.0, 0.5, part)]) == pytest.approx(part)
    both = combined([(0.5, 0.5, part), (0.5, 0.5, part)])
    assert both.high - both.low == pytest.approx((part.high - part.low) / math.sqrt(2))
    assert combined([(0.5, 1.0, Interval(0.8, 1.0)), (0.5, 1.0, Interval(0.9, 1.0))]).high == 1


def test_failed_episodes_are_no_failures_of_the_policy():
    episodes = [
        played(["a"], passed=True, task="held_out/1"),
        played(["a"], passed=False, task="held_out/1"),
        played(["a"], passed=False, task="held_out/2", failure="env_lost"),
    ]
    assert passed_by_task(episodes) == {"held_out/1": [True, False]}
