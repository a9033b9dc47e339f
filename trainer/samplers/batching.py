"""A `TokenSampler` over an engine that answers whole batches: for the tiny engines, whose batch is over in milliseconds.

While a batch is computed, requests gather for the next. A request that the engine refuses is found by asking for each alone,
so that it fails alone. New weights wait for the batch in flight, so that every answer is of one version.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from agent_runtime.policy import Completion, PolicyError, SampleRequest
from trainer.protocols.token_sampler import PROTOCOL, Aborted, Sampled, VersionSpan

__all__ = ["AnswersBatches", "BatchedSampler"]


class AnswersBatches(Protocol):
    """The part of an inference engine that is needed here."""

    def sample(self, requests: Sequence[SampleRequest]) -> list[Completion]:
        """Return one completion per request, in order. Raise `PolicyError`."""
        ...

    def load(self, weights: Any, version: int) -> None:
        """Take new weights."""
        ...


class BatchedSampler:
    """Implements `TokenSampler`. Batches are computed in a thread, one at a time."""

    protocol = PROTOCOL

    def __init__(self, engine: AnswersBatches, *, stops: bool) -> None:
        self.stops = stops
        """Whether it can end an answer at a text."""
        self._engine = engine
        self._waiting: list[tuple[SampleRequest, asyncio.Future[Sampled]]] = []
        self._turn = asyncio.Lock()
        self._may_go = asyncio.Event()
        self._may_go.set()
        self._worker: asyncio.Task[None] | None = None
        self._closed = False

    async def sample(self, request: SampleRequest) -> Sampled:
        """Answer one request as part of the next batch. Raise `PolicyError` where it failed."""
        if self._closed:
            raise Aborted("the sampler is closed. Start another one.")
        answer: asyncio.Future[Sampled] = asyncio.get_running_loop().create_future()
        self._waiting.append((request, answer))
        if self._worker is None or self._worker.done():
            self._worker = asyncio.get_running_loop().create_task(self._work())
        return await answer

    async def abort(self, rollout_id: str) -> int:
        """End the requests of a rollout that wait; a batch in flight is over soon and is not interrupted."""
        mine = [item for item in self._waiting if item[0].rollout_id == rollout_id and not item[1].done()]
        for request, answer in mine:
            answer.set_exception(
                Aborted(f"the request of rollout {rollout_id!r}, turn {request.turn} was aborted.")
            )
        return len(mine)

    async def pause(self) -> None:
        """Return once the batch in flight is over."""
        self._may_go.clear()
        async with self._turn:
            return

    async def resume(self) -> None:
        """Go on after `pause`."""
        self._may_go.set()

    async def sleep(self) -> None:
        """Wait for the batch in flight: an engine for batches keeps nothing between two of them."""
        await self.pause()

    async def wake(self) -> None:
        """Go on after `sleep`."""
        await self.resume()

    async def load(self, weights: Mapping[str, Any], version: int) -> None:
        """Take new weights after the batch in flight."""
        async with self._turn:
            await asyncio.to_thread(self._engine.load, weights, version)

    async def close(self) -> None:
        """End every request that waits."""
        self._closed = True
        for _, answer in self._waiting:
            if not answer.done():
                answer.set_exception(Aborted("the sampler was closed. Start the rollout again elsewhere."))
        self._waiting.clear()
        self._may_go.set()
        if self._worker is not None:
            await self._worker

    async def _work(self) -> None:
        while self._waiting:
            await self._may_go.wait()
            async with self._turn:
                if not self._may_go.is_set():
                    continue
                batch = [item for item in self._waiting if not item[1].done()]
                self._waiting.clear()
                batch.sort(key=lambda item: (item[0].rollout_id, item[0].turn))
                outcomes = await asyncio.to_thread(self._answer, [request for request, _ in batch])
            for (_, answer), outcome in zip(batch, outcomes, strict=True):
                if answer.done():
                    continue
                if isinstance(outcome, Sampled):
                    answer.set_result(outcome)
                else:
                    answer.set_exception(outcome)

    def _answer(self, requests: Sequence[SampleRequest]) -> list[Sampled | Exception]:
        if not requests:
            return []
        try:
            return [_sampled(completion) for completion in self._engine.sample(requests)]
        except Exception as error:  # noqa: BLE001 - boundary: whose failure it is is found by asking for each alone
            if len(requests) == 1:
                return [error if isinstance(error, PolicyError) else _failed(error)]
        return [outcome for request in requests for outcome in self._answer([request])]


def _failed(error: Exception) -> PolicyError:
    failed = PolicyError(f"the sampler failed: {type(error).__name__}: {error}.")
    failed.__cause__ = error
    return failed


def _sampled(completion: Completion) -> Sampled:
    return Sampled(
        ids=completion.ids,
        logprobs=completion.logprobs,
        finish_reason=completion.finish_reason,
        spans=(VersionSpan(completion.policy_version, 0, len(completion.ids)),),
        stopped_by=completion.stopped_by,
    )
