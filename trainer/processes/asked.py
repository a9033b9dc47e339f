"""Ray's actors as those see them who ask them: a rollout worker its engine, the learner its reference policy."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

import ray
import torch
from ray.exceptions import RayError

from agent_runtime.policy import Completion, SampleRequest
from trainer.data.batch import TrainBatch
from trainer.processes.ray_errors import is_lost, sampling_error

__all__ = ["BACK_S", "AskedEngine", "AskedReference"]

BACK_S = 600.0
"""Longest that is waited, where no sampler is left, for another process to take a lost one's place."""

_Said = TypeVar("_Said")


class AskedEngine:
    """A `trainer.processes.rollouts.Answering`: an inference actor, and others that answer in its place where it is lost."""

    def __init__(self, actors: Mapping[int, Any], first: int, *, patience_s: float = 0.0) -> None:
        """Take the actors by number, and which is asked first. The others follow it in turn.

        Where all are lost a request waits for so many seconds until another process is met.
        """
        order = sorted(actors, key=lambda number: (number < first, number))
        self._actors = {number: actors[number] for number in order}
        self._patience_s = patience_s
        self._waiting: list[asyncio.Future[None]] = []

    def meet(self, number: int, actor: Any) -> None:
        """Ask another process as the actor of this number."""
        self._actors[number] = actor
        for waiting in self._waiting:
            if not waiting.done():  # a rollout that ended meanwhile
                waiting.set_result(None)
        self._waiting.clear()

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
        while True:
            actor = next(actor for actor in self._actors.values() if actor not in asked)
            asked.append(actor)
            try:
                return await ask(actor)
            except RayError as error:
                if not is_lost(error) or not await self._may_ask_another(asked):
                    raise sampling_error(error, what) from error

    async def _may_ask_another(self, asked: Sequence[Any]) -> bool:
        """Return whether there is an actor that was not asked, now or before patience ends."""
        if any(actor not in asked for actor in self._actors.values()):
            return True
        if not self._patience_s:
            return False
        met = asyncio.get_running_loop().create_future()
        self._waiting.append(met)
        try:
            async with asyncio.timeout(self._patience_s):
                await met
        except TimeoutError:
            return False
        finally:
            if met in self._waiting:
                self._waiting.remove(met)
        return True


class AskedReference:
    """A `ReferenceActor`, called for the log-probabilities of a batch."""

    def __init__(self, actor: Any) -> None:
        self._actor = actor

    def __call__(self, batch: TrainBatch) -> torch.Tensor:
        logprobs: torch.Tensor = ray.get(self._actor.logprobs.remote(batch))
        return logprobs
