"""Evaluation on real engines and a real environment: what it counts, and when it says that there is nothing to count."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from local_fleet import LocalFleet, config_of, lost

from agent_runtime.store import decode, encode
from agent_runtime.types import Trajectory
from trainer.environments import open_environments
from trainer.errors import Halted
from trainer.evaluation import Evaluator
from trainer.metrics import Interval
from trainer.rollout.success import passed_by_task
from trainer.rollout.tasks import is_sample


class LosingFleet(LocalFleet):
    """A fleet that loses the episodes that `lose` names."""

    def __init__(self, config: Any, lose: Callable[[Trajectory], bool], server_end: str = "") -> None:
        super().__init__(config)
        self._lose, self.server_end = lose, server_end

    def run(self, requests: Any, policy_step: int) -> list[bytes]:
        played = [decode(data) for data in super().run(requests, policy_step)]
        return [encode(lost(t) if self._lose(t) else t) for t in played]


def evaluator(lose: Callable[[Trajectory], bool], **options: Any) -> Evaluator:
    config = config_of(eval={"tasks": 2, "apart": ["train"]}, **options)
    return Evaluator(config, open_environments(config), LosingFleet(config, lose))


@pytest.mark.parametrize("split", ["held_out", "train"])
def test_a_split_without_one_verdict_halts_the_run_and_is_named(split):
    """Half of all episodes is within the limit, but this split's success would be 0 / 0."""
    measured = evaluator(lambda t: t.task_id.startswith(split))
    with pytest.raises(
        Halted, match=rf"2 of 2 evaluation episodes of split '{split}' failed, .* env_lost: The worker"
    ):
        measured.play(0, 2, ["train"])


def test_a_failed_episode_is_left_out_of_its_split_and_counted():
    tasks: set[str] = set()

    def first_of_its_split(t: Trajectory) -> bool:
        split = t.task_id.rpartition("/")[0]
        return split not in tasks and not tasks.add(split)

    found, encoded = evaluator(first_of_its_split).play(0, 2, ["train"])
    assert (found.episodes, found.failures, len(encoded)) == (1, 1, 4)
    (whole,) = [t for t in map(decode, encoded) if t.failure is None and t.task_id.startswith("held_out")]
    assert (found.reward, found.turns) == (whole.reward, len(whole.turns))
    assert found.metrics()["turns"] == found.turns
    assert found.success in (0, 1)
    assert found.apart["train"] in (0, 1)
    assert found.metrics()["success/train"] == found.apart["train"]
    assert found.metrics()["success_high/train"] == found.apart_intervals["train"].high
    assert found.interval.low <= found.success <= found.interval.high
    assert found.interval.high - found.interval.low > 0.7, "of one episode"


def test_a_split_apart_is_measured_on_as_many_tasks_as_were_asked_for():
    config = config_of(eval={"tasks": 2, "apart": ["train"], "apart_tasks": 1})
    measured = Evaluator(config, open_environments(config), LosingFleet(config, lambda _: False))
    found, encoded = measured.play(0, 2, ["train"])
    splits = [decode(data).task_id.rpartition("/")[0] for data in encoded]
    assert (splits.count("held_out"), splits.count("train")) == (2, 1)
    assert found.episodes == 2


def test_samples_are_measured_apart_from_greedy_episodes_and_leave_them_as_they_are():
    plain = config_of(eval={"tasks": 3})
    config = config_of(eval={"tasks": 3, "samples": 4})
    greedy, alone = Evaluator(plain, open_environments(plain), LosingFleet(plain, lambda _: False)).play(0, 3)
    measured = Evaluator(config, open_environments(config), Lucky(config, lambda _: False))
    without, _ = measured.play(0, 3)
    assert without == greedy, "not where nobody asks for samples"
    found, encoded = measured.play(0, 3, sampled=True)
    samples = [t for t in map(decode, encoded) if is_sample(t)]
    assert (len(encoded), len(samples), found.episodes) == (15, 12, 3)
    assert [actions_of(data) for data in encoded[:3]] == [actions_of(data) for data in alone]
    assert replace(found, pass_at={}, pass_interval=Interval()).metrics() == greedy.metrics()
    assert dict(found.pass_at) == pytest.approx({1: 0.25, 2: 0.5, 4: 1.0})
    values = found.metrics()
    assert values["pass@1_low"] < values["pass@1"] == 0.25 < values["pass@1_high"]
    assert {task: len(own) for task, own in passed_by_task(samples).items()} == dict.fromkeys(
        {t.task_id for t in samples}, 4
    )


class Lucky(LosingFleet):
    """A fleet whose policy passes the third sample of each task."""

    def run(self, requests: Any, policy_step: int) -> list[bytes]:
        played = [decode(data) for data in super().run(requests, policy_step)]
        return [encode(replace(t, passed=t.index == 2) if is_sample(t) else t) for t in played]


def actions_of(data: bytes) -> tuple[str, ...]:
    return decode(data).actions


def test_samples_without_one_verdict_halt_the_run():
    config = config_of(eval={"tasks": 2, "samples": 1})
    measured = Evaluator(config, open_environments(config), LosingFleet(config, is_sample))
    with pytest.raises(Halted, match="2 of 2 sampled evaluation episodes failed"):
        measured.play(0, 2, sampled=True)


def test_more_failures_than_allowed_halt_the_run():
    measured = evaluator(lambda t: t.task_id.startswith("train"), rollout={"max_failure_rate": 0.4})
    with pytest.raises(Halted, match=r"2 of 4 rollouts failed \(limit: share 0.4\)"):
        measured.play(0, 2, ["train"])


def test_a_server_that_ended_is_named_as_the_cause():
    config = config_of(eval={"tasks": 2})
    fleet = LosingFleet(config, lambda _: True, server_end="it was killed by signal 9")
    with pytest.raises(
        Halted, match=r"ROCK server ended \(it was killed by signal 9\), so 2 of 2 rollouts failed"
    ):
        Evaluator(config, open_environments(config), fleet).play(0, 2)
