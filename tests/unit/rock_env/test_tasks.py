"""Task sources: pure, disjoint by content, and clear about what they do not have."""

from __future__ import annotations

import pickle

import pytest

from rock_env.errors import InvalidArgument, UnknownName
from rock_env.tasks import ListedTasks, ProceduralTasks, derive_seed


def source(values: int, **counts: int) -> ProceduralTasks:
    return ProceduralTasks(lambda seed: f"level {seed % values}", salt="test", instruction="Do it.", **counts)


def test_derived_seeds_are_fixed_for_ever() -> None:
    assert derive_seed("frozen_lake", "train", 0, 0) == 2515963558823856913
    assert derive_seed("a", 1) != derive_seed("a", 2)


def test_a_procedural_task_depends_on_split_and_index_only() -> None:
    forwards = [source(10_000).get("train", index) for index in range(20)]
    backwards = [source(10_000).get("train", index) for index in reversed(range(20))]
    assert forwards == backwards[::-1]
    assert forwards[3].id == "train/3"
    assert forwards[3].instruction == "Do it."
    assert len({task.payload for task in forwards}) > 15


def test_a_task_source_travels_to_another_process() -> None:
    tasks = ProceduralTasks(str, salt="test", instruction="")
    assert pickle.loads(pickle.dumps(tasks)).get("held_out", 5) == tasks.get("held_out", 5)


def test_procedural_splits_share_no_payload_and_hold_out_a_fifth_of_the_content() -> None:
    tasks = source(500)
    train = {tasks.get("train", index).payload for index in range(4000)}
    held_out = {tasks.get("held_out", index).payload for index in range(1500)}
    assert not train & held_out
    assert len(train) + len(held_out) == 500
    assert 60 < len(held_out) < 140  # 100 expected, standard deviation 9


def test_an_empty_split_is_reported_when_a_task_is_asked_for() -> None:
    assert source(1).get("train", 0).payload == "level 0"
    with pytest.raises(InvalidArgument, match="split 'held_out' is empty: 2000 draws"):
        source(1).get("held_out", 0)


@pytest.mark.parametrize("index", [-1, 5])
def test_an_index_out_of_range_names_the_count(index: int) -> None:
    with pytest.raises(InvalidArgument, match="has 5 tasks"):
        source(10, train=5).get("train", index)


@pytest.mark.parametrize("tasks", [source(10), ListedTasks(["a", "b"], instruction="")])
def test_an_unknown_split_lists_the_known_ones(tasks: ProceduralTasks | ListedTasks) -> None:
    with pytest.raises(UnknownName, match=r"Did you mean 'held_out'.*train"):
        tasks.count("heldout")
    with pytest.raises(UnknownName):
        tasks.get("test", 0)


def test_listed_tasks_keep_their_order_and_count_duplicates_once() -> None:
    payloads = [f"level {number}" for number in range(20)]
    tasks = ListedTasks([*payloads, *payloads], instruction="")
    assert (tasks.count("train"), tasks.count("held_out")) == (16, 4)
    train = [tasks.get("train", index).payload for index in range(16)]
    held_out = [tasks.get("held_out", index).payload for index in range(4)]
    assert sorted([*train, *held_out]) == sorted(payloads)
    assert train == [payload for payload in payloads if payload in train]


def test_two_listed_tasks_are_one_per_split_and_one_is_both() -> None:
    two = ListedTasks(["a", "b"], instruction="")
    assert {two.get("train", 0).payload, two.get("held_out", 0).payload} == {"a", "b"}
    one = ListedTasks(["a"], instruction="")
    assert one.get("train", 0).payload == one.get("held_out", 0).payload == "a"
    with pytest.raises(InvalidArgument, match="empty"):
        ListedTasks([], instruction="")
