"""A small model plays in this process: no Ray, and no process but that of a ROCK server where the environments need one."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch

from agent_runtime.policy import Completion, SampleRequest
from agent_runtime.types import RolloutRequest
from rock_env.errors import InvalidArgument
from rock_env.threads import completed
from trainer.config import TrainConfig
from trainer.models.chosen import asks_singly, check_files, memory_of
from trainer.processes.hosting import check_rock, rock_of
from trainer.processes.learner import Learner
from trainer.processes.rollouts import Answering, RolloutWorker
from trainer.processes.samplers import InferenceActor, SteppedActor
from trainer.samplers.arrival import check_arrival

__all__ = ["is_small", "play_here"]

_SMALL_BYTES = 100_000_000
"""Of the weights of a model that plays here: what it computes for a turn takes less time than another process to start."""


def is_small(config: TrainConfig) -> bool:
    """Return whether the model plays in this process: it has at most 100 MB of weights, and nothing places it elsewhere.

    An engine that works out no memory is taken to be small.
    """
    if config.placement.pool or config.sampler:
        return False
    try:
        roles = memory_of(config)
    except InvalidArgument:
        return False
    ranks = max((role.processes for role in roles if role.name == "learner"), default=1)
    return ranks == 1 and all(role.parts.get("weights", 0) <= _SMALL_BYTES for role in roles)


def play_here(config: TrainConfig, requests: Sequence[RolloutRequest], artifacts: Path | None) -> list[bytes]:
    """Let the model play what is asked for; return encoded trajectories in the order of the requests.

    They are those that a `Fleet` gives, whose workers and batches are the same. Raise `TrainerError` or `RockError`.
    """
    check_files(config.model)
    shelf = check_rock(config)
    with ExitStack() as stack:
        stack.enter_context(_threads_as_before())
        address, _ = rock_of(config, shelf, stack)
        try:
            return completed(
                _played(config, requests, address, str(artifacts.absolute()) if artifacts else "")
            )
        except BaseExceptionGroup as group:  # of rollouts side by side
            raise _first(group) from group


async def _played(
    config: TrainConfig, requests: Sequence[RolloutRequest], address: str, artifacts: str
) -> list[bytes]:
    count = config.rollout.workers
    async with AsyncExitStack() as stack:
        engine = await _engine(config, stack)
        workers = [RolloutWorker(config, address, engine, artifacts) for _ in range(count)]
        for worker in workers:
            stack.push_async_callback(worker.close)
            await worker.ready()
        async with asyncio.TaskGroup() as group:
            parts = [
                group.create_task(worker.run(requests[number::count], 0))
                for number, worker in enumerate(workers)
            ]
    return [parts[number % count].result()[number // count] for number in range(len(requests))]


async def _engine(config: TrainConfig, stack: AsyncExitStack) -> Answering:
    """Return what samples, with the weights that a learner begins with as version 0."""
    learner = Learner(config)
    learner.ready()
    if asks_singly(config):
        actor: Any = SteppedActor(config)
        engine: Answering = actor
    else:
        actor = InferenceActor(config)
        engine = _Threaded(actor, stack.enter_context(ThreadPoolExecutor(1)))
    actor.ready()
    learner.prove_to(await _now(actor.arrived()))
    weights = learner.publish(0)
    check_arrival(learner.sent(), [await _now(actor.load(weights, 0))], 0)
    return engine


class _Threaded:
    """An engine that is asked from an event loop and computes on a thread of its own."""

    def __init__(self, actor: InferenceActor, thread: ThreadPoolExecutor) -> None:
        self._actor, self._thread = actor, thread

    async def sample(self, requests: Sequence[SampleRequest]) -> Sequence[Completion]:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._actor.sample, requests)

    async def answer(self, request: SampleRequest) -> Completion:
        (completion,) = await self.sample([request])
        return completion


@contextmanager
def _threads_as_before() -> Iterator[None]:
    """Leave torch as many threads as it had: engines take their own number for the whole process."""
    before = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(before)


async def _now(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
