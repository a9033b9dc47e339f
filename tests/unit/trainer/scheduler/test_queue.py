"""The states of rollouts: what changes are taken, in which order they start, and that nothing stays behind."""

from __future__ import annotations

import pytest

from agent_runtime.types import RolloutRequest
from trainer.config import RolloutOptions, TrainConfig
from trainer.rollout.tasks import train_requests
from trainer.scheduler.queue import QueueError, RolloutQueue, State

CONFIG = TrainConfig(rollout=RolloutOptions(groups_per_step=2, group_size=2))


def requests(step: int, first: int = 0) -> list[RolloutRequest]:
    return train_requests(CONFIG, "{}", step, tasks=["train/0", "train/1"], first=first)


def test_the_oldest_plan_comes_first_and_its_groups_one_after_another() -> None:
    queue = RolloutQueue()
    for step in (2, 1):
        queue.add(step, requests(step))
    queue.add(1, requests(1, first=2))
    started = [request.id for request in iter(queue.take, None)]
    assert started == [r.id for r in (*requests(1), *requests(1, first=2), *requests(2))]
    assert queue.counts[State.RUNNING] == 12


def test_a_rollout_is_consumed_once_and_only_when_it_is_in() -> None:
    queue = RolloutQueue()
    queue.add(1, requests(1))
    ids = [request.id for request in requests(1)]
    with pytest.raises(QueueError, match="cannot become consumed: got one that is planned"):
        queue.move(ids, State.CONSUMED)
    while queue.take():
        pass
    queue.move(ids, State.FINISHED)
    queue.move(ids, State.CONSUMED)
    for to in State:
        with pytest.raises(QueueError, match="got one that is consumed"):
            queue.move(ids[:1], to)
    queue.forget(1)
    assert not +queue.counts
    with pytest.raises(QueueError, match="got one that is not known"):
        queue.move(ids, State.CONSUMED)


def test_none_is_planned_twice_and_none_is_forgotten_unended() -> None:
    queue = RolloutQueue()
    queue.add(1, requests(1))
    with pytest.raises(QueueError, match="planned twice"):
        queue.add(2, requests(1))
    with pytest.raises(QueueError, match="4 rollouts of plan 1 came to no end"):
        queue.forget(1)
    assert len(queue.abort(1)) == 4
    assert queue.take() is None
    queue.forget(1)
    queue.restore(1, ["a", "b"])
    with pytest.raises(QueueError, match="on record twice"):
        queue.restore(2, ["b"])
