"""Who answers a rollout worker: its own sampler, and where that one is lost another one, with the same request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from ray.exceptions import (
    ActorDiedError,
    ActorUnavailableError,
    NodeDiedError,
    OutOfMemoryError,
    RayTaskError,
)

from agent_runtime.policy import PolicyError, SampleRequest
from agent_runtime.types import SamplingParams
from trainer.errors import Halted, Lost
from trainer.processes.asked import AskedEngine

LOST = [
    ActorDiedError(),
    ActorUnavailableError("no answer", b"\x00" * 16),
    OutOfMemoryError("killed"),
    NodeDiedError("gone"),
]


def request() -> SampleRequest:
    return SampleRequest("a", 3, np.arange(5, dtype=np.int32), SamplingParams(max_tokens=3), 7)


class Actor:
    """Answers with its name, or raises; notes what it was asked."""

    def __init__(self, name: str, error: BaseException | None = None) -> None:
        self.name, self.error = name, error
        self.asked: list[Any] = []
        self.meanwhile: Callable[[], None] = lambda: None
        self.answer = self.sample = self

    async def remote(self, given: Any) -> Any:
        self.asked.append(given)
        self.meanwhile()
        if self.error:
            raise self.error
        return self.name


def raised(cause: Exception) -> BaseException:
    task_error: Any = RayTaskError
    error: BaseException = task_error("answer", "traceback", cause).as_instanceof_cause()
    return error


@pytest.mark.parametrize("lost", LOST, ids=lambda error: type(error).__name__)
async def test_another_sampler_answers_the_same_request_where_the_own_one_is_lost(lost: Exception) -> None:
    actors = [Actor("0"), Actor("1", lost), Actor("2"), Actor("3", lost)]
    engine = AskedEngine(dict(enumerate(actors)), first=3)
    one = request()
    answers: list[Any] = [await engine.answer(one)]
    assert [actor.asked for actor in actors] == [[one], [], [], [one]]
    answers.append(await AskedEngine(dict(enumerate(actors)), first=1).sample([one]))
    assert answers == ["0", "2"]


async def test_what_a_sampler_raises_on_purpose_is_asked_of_no_other() -> None:
    for error in (PolicyError("the prompt is too long."), Halted("the sampler has a bug.")):
        actors = [Actor("0", raised(error)), Actor("1")]
        with pytest.raises(type(error), match=str(error)):
            await AskedEngine(dict(enumerate(actors)), first=0).answer(request())
        assert not actors[1].asked


async def test_the_run_is_told_where_no_sampler_lives_and_a_worker_of_one_sampler_asks_no_other() -> None:
    actors = [Actor("0", LOST[0]), Actor("1", LOST[0])]
    with pytest.raises(Lost, match=r"failed turn 3 of rollout 'a': the worker process died"):
        await AskedEngine(dict(enumerate(actors)), first=1).answer(request())
    assert [len(actor.asked) for actor in actors] == [1, 1]
    with pytest.raises(Lost, match=r"failed a batch of 1: the worker process died"):
        await AskedEngine({0: actors[0]}, first=0).sample([request()])


async def test_a_sampler_that_came_back_meanwhile_is_asked_too() -> None:
    actors = [Actor("0", LOST[0]), Actor("1", LOST[0])]
    engine = AskedEngine(dict(enumerate(actors)), first=0)
    actors[1].meanwhile = lambda: engine.meet(0, Actor("back"))
    answers: list[Any] = [await engine.answer(request()) for _ in range(2)]
    assert answers == ["back", "back"]
    assert len(actors[1].asked) == 1  # the one that came back is the first again


@pytest.mark.parametrize("lost", LOST, ids=lambda error: type(error).__name__)
async def test_a_request_waits_for_another_process_where_all_are_lost(lost: Exception) -> None:
    engine = AskedEngine({0: Actor("0", lost)}, first=0, patience_s=60)
    answer = asyncio.create_task(engine.answer(request()))
    other = asyncio.create_task(engine.answer(request()))
    for _ in range(5):
        await asyncio.sleep(0)
    assert len(engine._waiting) == 2
    other.cancel()
    engine.meet(0, Actor("another"))
    answered: Any = await answer
    assert answered == "another"
    assert engine._waiting == []


async def test_patience_ends() -> None:
    engine = AskedEngine({0: Actor("0", LOST[0])}, first=0, patience_s=1e-6)
    with pytest.raises(Lost, match="failed turn 3"):
        await engine.answer(request())
    assert engine._waiting == []
