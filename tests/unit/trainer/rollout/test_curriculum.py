"""What is learned first, and which tasks are drawn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import count

import msgspec
import numpy as np
import pytest
from algo_reference import CONTEXT, ragged_group, tables, trajectory
from hypothesis import given
from hypothesis import strategies as st

from trainer.algo.grpo import Grpo, GRPOOptions
from trainer.config import CurriculumOptions, FilterOptions, TrainConfig
from trainer.data.build import build_batch
from trainer.rollout.curriculum import (
    MOST_TASKS,
    PassRates,
    draw_tasks,
    mask_negatives,
    observe,
    outcome_variance,
)
from trainer.rollout.tasks import task_ids
from trainer.run_state import RunState

BY_RATE = CurriculumOptions(tasks="pass_rate")
MU = tables()[0]


class Source:
    splits = ("train", "other")

    def __init__(self, total: int) -> None:
        self.total = total

    def count(self, split: str) -> int:
        return self.total

    def get(self, split: str, index: int):
        raise AssertionError("drawing tasks must not build them")


def drawn(
    rates: PassRates, number: int, seed: int, *, total: int = 10, options=BY_RATE, without: Sequence[str] = ()
) -> list[str]:
    return draw_tasks(
        Source(total), "train", number, seed, rates=rates, options=options, without=set(without)
    )


def outcome(task: str, passed: bool, *, failed: bool = False):
    one = trajectory("t", [1], float(passed), ids=count(CONTEXT), failed=failed)
    return replace(one, task_id=task, passed=passed)


def test_an_outcome_is_most_uncertain_where_a_task_passes_half_of_the_time():
    found = outcome_variance([[0, 0], [8, 8], [16, 0], [0, 16]])
    # a b / ((a + b)(a + b + 1)) with a = 1 + passed, b = 1 + failed, since as many pass as fail.
    assert found == pytest.approx([1 / 6, 81 / 342, 17 / 342, 17 / 342])


def test_where_most_tasks_pass_one_that_failed_is_drawn_far_more_often():
    passed, failed, unseen = outcome_variance([[4, 0]] * 97 + [[0, 4], [0, 0], [2, 2]])[[0, 97, 98]]
    mean = (1 + 97 * 4 + 2) / (2 + 97 * 4 + 4 + 4)
    assert unseen == pytest.approx(mean * (1 - mean) / 1.5)
    assert failed > 5 * unseen > 10 * passed


def test_without_the_curriculum_tasks_are_drawn_as_ever():
    rates: PassRates = {"train/1": [5.0, 5.0]}
    assert drawn(rates, 4, 3, options=CurriculumOptions()) == task_ids(Source(10), "train", 4, 3)
    observe(rates, [outcome("train/2", True)], CurriculumOptions())
    assert rates == {"train/1": [5.0, 5.0]}


@given(
    st.dictionaries(
        st.integers(0, 14).map("train/{}".format), st.lists(st.floats(0, 50), min_size=2, max_size=2)
    ),
    st.integers(0, 20),
    st.integers(0, 2**62),
)
def test_a_draw_is_a_function_of_state_and_seed_without_needless_repetition(rates, number, seed):
    found = drawn(rates, number, seed, total=15)
    again = msgspec.msgpack.decode(
        msgspec.msgpack.encode(RunState(pass_rates={**rates, "other/3": [1.0, 1.0]})), type=RunState
    )
    assert found == drawn(again.pass_rates, number, seed, total=15)
    assert len(found) == number
    assert len(set(found)) == min(number, 15)
    assert set(found) <= {f"train/{n}" for n in range(15)}


@pytest.mark.parametrize("options", [CurriculumOptions(), BY_RATE])
@pytest.mark.parametrize("total", [6, 10**6])
def test_tasks_that_the_step_has_played_come_again_only_where_there_are_no_others(options, total):
    rates: PassRates = {"train/1": [2.0, 2.0]}
    first = drawn(rates, 4, 8, total=total, options=options)
    others = drawn(rates, 4, 8, total=total, options=options, without=first)
    assert len(set(others)) == 4
    assert not set(others[:2]) & set(first)
    assert len(set(others) & set(first)) == (2 if total == 6 else 0)


def test_tasks_are_drawn_toward_intermediate_pass_rate_and_none_is_given_up():
    rates: PassRates = {f"train/{n}": [40.0, 0.0] for n in range(4)}
    rates |= {f"train/{n}": [0.0, 40.0] for n in range(4, 8)} | {"train/8": [20.0, 20.0]}
    found = Counter(task for seed in range(600) for task in drawn(rates, 2, seed))
    assert set(found) == {f"train/{n}" for n in range(10)}
    # As many pass as fail. Weights: .244 known to pass half of the time, .167 never seen, .022 always or never passing.
    assert found["train/8"] > found["train/9"] > 3 * max(found[f"train/{n}"] for n in range(8))


def test_a_single_task_is_drawn_in_proportion_to_its_weight():
    rates: PassRates = {"train/0": [0.0, 10.0], "train/1": [3.0, 3.0]}
    found = Counter(drawn(rates, 1, seed, total=3)[0] for seed in range(4000))
    weights = outcome_variance([[0, 10], [3, 3], [0, 0]])
    shares = np.array([found[f"train/{n}"] for n in range(3)]) / 4000
    assert shares == pytest.approx(weights / weights.sum(), abs=0.03)


def test_known_tasks_compete_with_as_many_new_ones_where_tasks_have_no_end():
    rates: PassRates = {f"train/{n}": [6.0, 6.0] for n in range(30)}
    found = [task for seed in range(50) for task in drawn(rates, 10, seed, total=10**6)]
    known = sum(task in rates for task in found)
    assert 250 < known < 400  # of 500; the weights are 30 x .225 and 30 x .167
    assert len(drawn({}, 10, 0, total=10**6)) == 10


def test_outcomes_fade_and_failures_say_nothing():
    rates: PassRates = {"train/1": [4.0, 2.0], "train/2": [1.0, 1.0]}
    played = [outcome("train/1", True), outcome("train/1", False), outcome("train/1", True)]
    observe(
        rates,
        [*played, outcome("train/3", False, failed=True)],
        CurriculumOptions(tasks="pass_rate", memory=0.5),
    )
    assert rates == {"train/2": [1.0, 1.0], "train/1": [4.0, 2.0]}
    assert list(rates) == ["train/2", "train/1"]
    observe(rates, [outcome("train/2", False)], CurriculumOptions(tasks="pass_rate", memory=0.0))
    assert rates["train/2"] == [0.0, 1.0]


def test_the_tasks_visited_longest_ago_are_forgotten():
    rates: PassRates = {f"train/{n}": [1.0, 0.0] for n in range(MOST_TASKS)}
    observe(rates, [outcome("train/0", True), outcome("train/new", True)], BY_RATE)
    assert len(rates) == MOST_TASKS
    assert next(iter(rates)) == "train/2"
    assert list(rates)[-2:] == ["train/0", "train/new"]


def masked(step: int = 1, **changes: object):
    """Return a group's credits before and after, and its ledger, with steps counted from 1 of 10."""
    config = TrainConfig(
        steps=10,
        curriculum=CurriculumOptions(positive_only=changes.get("positive_only", 0.0)),
        filter=FilterOptions(negative_tokens=changes.get("negative_tokens", 0)),
    )
    group = ragged_group(MU)
    before = Grpo(GRPOOptions()).credit(group)
    after = mask_negatives(group, before, config, step)
    _, ledger = build_batch(group, after, token_budget=9)
    return group, before, after, ledger


def negatives(group, credits) -> list[int]:
    return [
        n
        for n, (t, c) in enumerate(zip(group, credits, strict=True))
        if not t.is_expert and t.failure is None and not c.positive
    ]


@pytest.mark.parametrize(("step", "on"), [(1, True), (3, True), (4, False), (10, False)])
def test_negatives_wait_until_the_share_of_steps_for_positives_is_over(step, on):
    group, before, after, ledger = masked(step, positive_only=0.3)
    waiting = negatives(group, before)
    assert len(waiting) == 3
    for n, (one, other) in enumerate(zip(before, after, strict=True)):
        if on and n in waiting:
            assert one.advantage_K.any()
            assert not other.advantage_K.any()
        else:
            assert other is one
    tokens = sum(group[n].sampled_tokens for n in waiting)
    assert ledger.masked.get("positives only", 0) == (tokens if on else 0)


def test_only_negatives_longer_than_allowed_are_masked():
    group, before, after, ledger = masked(negative_tokens=7)
    lengths = {n: group[n].sampled_tokens for n in negatives(group, before)}
    assert sorted(lengths.values()) == [5, 8, 8]
    changed = [n for n, (one, other) in enumerate(zip(before, after, strict=True)) if other is not one]
    assert changed == [n for n, length in lengths.items() if length == 8]
    assert ledger.masked["long negative"] == 16
    assert "long negative" not in masked(negative_tokens=8)[3].masked


def test_what_is_masked_still_counts_in_every_divisor():
    group, _, after, _ = masked(positive_only=1.0)
    batch, _ = build_batch(group, after, token_budget=9)
    whole, _ = build_batch(group, Grpo(GRPOOptions()).credit(group), token_budget=9)
    assert (batch.counts, batch.normalizer) == (whole.counts, whole.normalizer)
    assert len(batch.tokens_BT) < len(whole.tokens_BT)
