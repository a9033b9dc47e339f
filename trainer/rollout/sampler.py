"""The policy as a rollout worker sees it: single requests in; to an inference engine batches, or single requests, too.

Batches: `lockstep` flushes when every live rollout waits, which makes the composition of each batch, and so every
rounding error, a function of the requests alone. `eager` flushes whenever the engine is idle. Never retries and never
reorders results.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from agent_runtime.policy import Completion, PolicyError, SampleRequest

__all__ = ["AskingSampler", "BatchingSampler", "SlotSampler"]

Call = Callable[[Sequence[SampleRequest]], Awaitable[Sequence[Completion]]]


class SlotSampler(Protocol):
    """An `agent_runtime.policy.Sampler` of rollouts in slots, which it may wait for."""

    stops: bool

    def join(self) -> None: ...

    def leave(self) -> None: ...

    async def sample(self, request: SampleRequest) -> Completion: ...


class AskingSampler:
    """Sends every request as it comes: no slot waits for another."""

    def __init__(self, call: Callable[[SampleRequest], Awaitable[Completion]], *, stops: bool) -> None:
        self.stops = stops
        self._call = call

    def join(self) -> None:
        """Do nothing: what others do does not matter."""

    def leave(self) -> None:
        """Do nothing."""

    async def sample(self, request: SampleRequest) -> Completion:
        """Sample one completion. Raise what the call raises: it is this request's failure."""
        return await self._call(request)


class BatchingSampler:
    """Implements `agent_runtime.policy.Sampler` over a batch call. One event loop only."""

    def __init__(self, call: Call, *, lockstep: bool, stops: bool = False) -> None:
        """`stops`: the engine ends an answer at a text."""
        self.stops = stops
        self._call = call
        self._lockstep = lockstep
        self._live = 0
        self._pending: list[tuple[SampleRequest, asyncio.Future[Completion]]] = []
        self._flights: set[asyncio.Task[None]] = set()

    def join(self) -> None:
        """Announce one more rollout slot whose requests a lockstep batch must wait for."""
        self._live += 1

    def leave(self) -> None:
        """Announce that a slot will ask no more."""
        self._live -= 1
        self._flush_if_due()

    async def sample(self, request: SampleRequest) -> Completion:
        """Sample one completion as part of a batch. Raise `PolicyError` when the engine failed the batch."""
        future: asyncio.Future[Completion] = asyncio.get_running_loop().create_future()
        self._pending.append((request, future))
        self._flush_if_due()
        return await future

    def _flush_if_due(self) -> None:
        self._pending = [item for item in self._pending if not item[1].done()]  # nobody waits for the others
        if not self._pending:
            return
        due = len(self._pending) >= self._live if self._lockstep else not self._flights
        if not due:
            return
        batch = sorted(self._pending, key=lambda item: (item[0].rollout_id, item[0].turn))
        self._pending = []
        flight = asyncio.get_running_loop().create_task(self._fly(batch))
        self._flights.add(flight)
        flight.add_done_callback(self._landed)

    def _landed(self, flight: asyncio.Task[None]) -> None:
        self._flights.discard(flight)
        if not flight.cancelled():
            self._flush_if_due()

    async def _fly(self, batch: list[tuple[SampleRequest, asyncio.Future[Completion]]]) -> None:
        try:
            completions = await self._call([request for request, _ in batch])
            if len(completions) != len(batch):
                raise PolicyError(
                    f"the engine returned {len(completions)} completions for {len(batch)} requests"
                )
        except Exception as error:  # noqa: BLE001 - boundary: whatever failed the batch fails its members
            for _, future in batch:
                if not future.done():
                    future.set_exception(error)
            return
        for (_, future), completion in zip(batch, completions, strict=True):
            if not future.done():
                future.set_result(completion)
