"""Task sources: pure, disjoint by content, and clear about what they do not have."""

from __future__ import annotations

import pickle

import pytest

from rock_env.errors import InvalidArgument, UnknownName
from rock_env.spec import EnvParams
from rock_env.tasks import ExtraSplit, ListedTasks, ProceduralTasks, derive_seed


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


def test_an_extra_split_has_the_held_out_tasks_of_another_source_under_its_own_name() -> None:
    more = ProceduralTasks(lambda seed: f"new {seed % 50}", salt="new", instruction="look", held_out=3)
    tasks = ExtraSplit(ListedTasks(list("abcde"), instruction="go"), "unseen", more)
    assert tasks.splits == ("train", "held_out", "unseen")
    assert [tasks.count(split) for split in tasks.splits] == [4, 1, 3]
    found, wanted = tasks.get("unseen", 1), more.get("held_out", 1)
    assert (found.id, found.split, found.index) == ("unseen/1", "unseen", 1)
    assert (found.payload, found.instruction) == (wanted.payload, "look")
    assert tasks.get("train", 0).instruction == "go"
    with pytest.raises(InvalidArgument, match="unseen/3: split 'unseen' has 3 tasks"):
        tasks.get("unseen", 3)
    with pytest.raises(UnknownName, match=r"Known: train, held_out, unseen|Known: held_out, train, unseen"):
        tasks.count("other")


def test_arguments_of_another_environment_are_refused() -> None:
    class Lake(EnvParams):
        size: int = 4

    class Room(EnvParams):
        pass

    lake = Lake()
    assert Lake.narrowed(lake) is lake
    with pytest.raises(InvalidArgument, match=r"expected Lake, got Room: build it with ENV\.params"):
        Lake.narrowed(Room())
