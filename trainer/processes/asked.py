"""Ray's actors as those see them who ask them: a rollout worker its engine, the learner its reference policy."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import ray
import torch
from ray.exceptions import RayError

from agent_runtime.policy import Completion, SampleRequest
from trainer.data.batch import TrainBatch
from trainer.processes.ray_errors import sampling_error

__all__ = ["AskedEngine", "AskedReference"]


class AskedEngine:
    """A `trainer.processes.rollouts.Answering`: an inference actor."""

    def __init__(self, actor: Any) -> None:
        self._actor = actor

    async def sample(self, requests: Sequence[SampleRequest]) -> Sequence[Completion]:
        """Return one completion per request, in order. Raise `PolicyError`, or `Halted` for a sampler with a bug."""
        try:
            completions: list[Completion] = await self._actor.sample.remote(requests)
        except RayError as error:
            raise sampling_error(error, f"the inference engine failed a batch of {len(requests)}") from error
        return completions

    async def answer(self, request: SampleRequest) -> Completion:
        """Return the completion of one request, of an engine that steps. Raise as `sample`."""
        answer = self._actor.answer.remote(request)
        try:
            completion: Completion = await answer
        except asyncio.CancelledError:
            ray.cancel(answer)  # nobody waits for its other tokens
            raise
        except RayError as error:
            what = f"the inference engine failed turn {request.turn} of rollout {request.rollout_id!r}"
            raise sampling_error(error, what) from error
        return completion


class AskedReference:
    """A `ReferenceActor`, called for the log-probabilities of a batch."""

    def __init__(self, actor: Any) -> None:
        self._actor = actor

    def __call__(self, batch: TrainBatch) -> torch.Tensor:
        logprobs: torch.Tensor = ray.get(self._actor.logprobs.remote(batch))
        return logprobs
