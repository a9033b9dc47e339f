import pytest

from trainer.config import AnchorOptions, RolloutOptions, TrainConfig
from trainer.errors import ConfigError
from trainer.rollout.tasks import eval_requests, sample_requests, task_ids, train_requests
from trainer.seeds import derive


class Source:
    splits = ("train",)

    def __init__(self, total: int) -> None:
        self.total = total

    def count(self, split: str) -> int:
        return self.total

    def get(self, split: str, index: int):
        raise AssertionError("drawing tasks must not build them")


def test_tasks_do_not_repeat_where_there_are_enough():
    ids = task_ids(Source(1_000_000), "train", 500, seed=3)
    assert len(set(ids)) == 500
    assert ids == task_ids(Source(1_000_000), "train", 500, seed=3)
    assert ids != task_ids(Source(1_000_000), "train", 500, seed=4)


def test_few_tasks_are_all_used_before_any_repeats():
    ids = task_ids(Source(3), "train", 8, seed=0)
    assert ids[:3] == ["train/0", "train/1", "train/2"]
    assert len(ids) == 8


def test_a_split_without_tasks_is_refused_where_one_is_wanted():
    with pytest.raises(ConfigError, match=r"split 'train' has no task .*got train 0.*eval\.split.*env_args"):
        task_ids(Source(0), "train", 1, seed=0)
    assert task_ids(Source(0), "train", 0, seed=0) == []


def test_seeds_differ_by_rollout_and_are_the_same_again():
    config = TrainConfig(rollout=RolloutOptions(group_size=4), anchors=AnchorOptions())
    first = train_requests(config, "{}", 5, tasks=["train/1", "train/2"], anchors=[])
    again = train_requests(config, "{}", 5, tasks=["train/1", "train/2"], anchors=[])
    assert first == again
    assert len({request.seed for request in first}) == 8
    assert len({request.start.env_seed for request in first}) == 8
    assert [request.group_id for request in first] == ["000005-0000"] * 4 + ["000005-0001"] * 4


def test_evaluation_seeds_are_the_same_at_every_step():
    config = TrainConfig()
    early, late = (eval_requests(config, "{}", step, ["held_out/1"])[0] for step in (0, 50))
    assert early.start == late.start
    assert early.id != late.id


def test_samples_of_an_evaluation_are_independent_and_reproducible():
    config = TrainConfig.model_validate({"eval": {"samples": 3, "samples_temperature": 0.7}})
    tasks = ["held_out/1", "held_out/2"]
    early, again, late = (sample_requests(config, "{}", step, tasks) for step in (0, 0, 50))
    assert early == again
    assert [(request.task_id, request.index) for request in early] == [
        (t, n) for t in tasks for n in range(3)
    ]
    for seeds in ({r.seed for r in early + late}, {r.id for r in early + late}):
        assert len(seeds) == 12
    assert len({request.start.env_seed for request in early}) == 6
    assert [r.start for r in early] == [r.start for r in late], "the same luck of the environment"
    assert {request.sampling.temperature for request in early} == {0.7}
    assert sample_requests(TrainConfig(), "{}", 0, tasks) == []


def test_derived_seeds_depend_on_every_part():
    seeds = {derive(0, "a", 1), derive(1, "a", 1), derive(0, "b", 1), derive(0, "a", 2), derive(0, "a1")}
    assert len(seeds) == 5
    assert all(0 <= seed < 1 << 63 for seed in seeds)
