"""Ray's actors as those see them who ask them: a rollout worker its engine, the learner its reference policy."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

import ray
import torch
from ray.exceptions import RayActorError, RayError

from agent_runtime.policy import Completion, SampleRequest
from trainer.data.batch import TrainBatch
from trainer.processes.ray_errors import sampling_error

__all__ = ["AskedEngine", "AskedReference"]

_Said = TypeVar("_Said")


class AskedEngine:
    """A `trainer.processes.rollouts.Answering`: an inference actor, and others that answer in its place where it is lost."""

    def __init__(self, actors: Mapping[int, Any], first: int) -> None:
        """Take the actors by number, and which is asked first. The others follow it in turn."""
        order = sorted(actors, key=lambda number: (number < first, number))
        self._actors = {number: actors[number] for number in order}

    def meet(self, number: int, actor: Any) -> None:
        """Ask another process as the actor of this number."""
        self._actors[number] = actor

    async def sample(self, requests: Sequence[SampleRequest]) -> Sequence[Completion]:
        """Return one completion per request, in order. Raise `PolicyError`, or `Halted` for a sampler with a bug."""

        async def ask(actor: Any) -> list[Completion]:
            completions: list[Completion] = await actor.sample.remote(requests)
            return completions

        return await self._first(ask, f"the inference engine failed a batch of {len(requests)}")

    async def answer(self, request: SampleRequest) -> Completion:
        """Return the completion of one request, of an engine that steps. Raise as `sample`."""

        async def ask(actor: Any) -> Completion:
            answer = actor.answer.remote(request)
            try:
                completion: Completion = await answer
            except asyncio.CancelledError:
                ray.cancel(answer)  # nobody waits for its other tokens
                raise
            return completion

        what = f"the inference engine failed turn {request.turn} of rollout {request.rollout_id!r}"
        return await self._first(ask, what)

    async def _first(self, ask: Callable[[Any], Awaitable[_Said]], what: str) -> _Said:
        """Return what the first actor says that lives: a request holds all that it takes to answer it anew."""
        asked: list[Any] = []
        while left := [actor for actor in self._actors.values() if actor not in asked]:
            asked.append(left[0])
            try:
                return await ask(left[0])
            except RayError as error:
                failed = error
                if not isinstance(error, RayActorError):
                    break
        raise sampling_error(failed, what) from failed


class AskedReference:
    """A `ReferenceActor`, called for the log-probabilities of a batch."""

    def __init__(self, actor: Any) -> None:
        self._actor = actor

    def __call__(self, batch: TrainBatch) -> torch.Tensor:
        logprobs: torch.Tensor = ray.get(self._actor.logprobs.remote(batch))
        return logprobs
