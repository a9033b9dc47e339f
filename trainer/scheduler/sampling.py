"""The scheduler: plays plan after plan, as far ahead of the learner as the lag allows, and hands over batches in order.

Plan s is played wholly with version s - 1 - lag, in the first steps with the oldest there is; it is drawn when every outcome
of the plan before it was observed, because anchors and pass rates are moved by these. So what is learned is a function of
the settings alone, whatever overlaps. With lag 0 nothing overlaps.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, Protocol

from agent_runtime.types import RolloutRequest, Trajectory
from trainer.config import TrainConfig
from trainer.reward.router import Rewarded
from trainer.rollout.filling import Rollouts
from trainer.rollout.planning import Plan
from trainer.rollout.starts import Anchor
from trainer.scheduler.collector import Collector, allowed_extra
from trainer.scheduler.groups import StreamState
from trainer.scheduler.journal import BatchTally, Journal, asked_for
from trainer.scheduler.queue import RolloutQueue, State
from trainer.timeline import Role

__all__ = ["Batch", "Calls", "PlanSource", "Sampling", "Scheduler", "Span"]


class Calls(Protocol):
    """What plays rollouts: `trainer.processes.fleet.Fleet`, or the simulator."""

    @property
    def slots(self) -> Sequence[int]:
        """Return the most rollouts that each worker runs at once."""
        ...

    @property
    def server_end(self) -> str:
        """Say how the embedded ROCK server ended; empty while it runs."""
        ...

    async def serve(self, version: int) -> int:
        """Have every sampler hold the weights of a version, or of the oldest that there is; return which."""
        ...

    async def play_at(
        self, worker: int, requests: Sequence[RolloutRequest], policy_step: int
    ) -> list[list[bytes]]:
        """Return all attempts at each request, the one that counts last."""
        ...

    async def fails(self) -> NoReturn:
        """Raise `Halted` as soon as nobody can sample any more; else never return. Asked by a stream."""
        ...

    async def judge(self, encoded: Sequence[bytes], run_folder: Path) -> Rewarded:
        """Let the reward workers judge trajectories, in order; their answers are kept in `run_folder`."""
        ...


class PlanSource(Protocol):
    """What a run's plans are drawn from, and where what is played goes."""

    def plan(self, step: int) -> Plan:
        """Draw a plan, by what was observed."""
        ...

    def more(
        self, step: int, first: int, envs: Sequence[str], used: Collection[tuple[str, str]]
    ) -> list[RolloutRequest]:
        """Draw further groups, as `collector.More`."""
        ...

    def store(self, step: int, rollouts: Rollouts) -> None:
        """Put a plan's rollouts on record."""
        ...

    def stored(self, step: int, tally: BatchTally) -> Rollouts | None:
        """Return a plan's rollouts from the record; None where it is not whole."""
        ...

    def observe(self, plan: Plan, rollouts: Rollouts) -> Any:
        """Move what the next plan is drawn from; return what the batch has to know of it."""
        ...

    def learning(self, step: int, requests: Sequence[RolloutRequest], anchors: Mapping[str, Anchor]) -> Plan:
        """Return what a step learns, of a stream's groups, by what was observed."""
        ...

    def keep(self, number: int, encoded: Sequence[bytes]) -> None:
        """Put all attempts of a stream's group on record until its batch is."""
        ...

    def kept(self, number: int) -> Sequence[bytes]:
        """Return them; none where the record is not whole."""
        ...

    def forget_kept(self, *, but: Collection[int]) -> None:
        """Let go of the record of all groups but these."""
        ...

    def halting(self) -> AbstractContextManager[None]:
        """Keep on record what was played where that halts the run."""
        ...


@dataclass(frozen=True, slots=True)
class Batch:
    """A plan's rollouts, all in."""

    plan: Plan
    rollouts: Rollouts
    after: Any
    """What `PlanSource.observe` said."""
    open: StreamState | None = None
    """What a stream has under way beside it."""


class Scheduler(Protocol):
    """What plays a run's plans, on one event loop."""

    queue: RolloutQueue
    """Where every rollout is."""

    async def run(self) -> None:
        """Play them. An error goes to whoever waits for the batch that it cost."""
        ...

    async def batch(self, step: int) -> Batch:
        """Return the batch of the step that comes next when it is there. Raise what its rollouts raised."""
        ...

    def consumed(self, batch: Batch) -> None:
        """Take note that a step learned a batch."""
        ...

    async def learned(self, version: int) -> None:
        """Take note that this version of the weights is there."""
        ...

    def paused(self) -> AbstractAsyncContextManager[None]:
        """Have the samplers keep the weights that they have in the body."""
        ...

    def close(self) -> None:
        """Drop what nobody asked for."""
        ...


Span = Callable[[Role, str, int], AbstractContextManager[None]]
"""`span(role, what, step)`: somebody does something in the body."""


class Sampling:
    """The plans `first` to `last` of a run. One event loop only; `run` is its one writer."""

    def __init__(
        self,
        calls: Calls,
        source: PlanSource,
        journal: Journal,
        *,
        config: TrainConfig,
        first: int,
        last: int,
        clock: Callable[[], float],
        span: Span = lambda *_: nullcontext(),
    ) -> None:
        """`clock()` says the time in seconds; the steps before `first` are learned."""
        self._calls, self._source, self._journal, self._config = calls, source, journal, config
        self._first, self._last, self._clock, self._span = first, last, clock, span
        self._lag = config.rollout.staleness
        self._ahead = self._lag if config.rollout.overlaps else 0
        self._learned = first - 1
        self._moved = asyncio.Condition()
        self._samplers = asyncio.Lock()
        self._ready: dict[int, asyncio.Future[Batch]] = {}
        self._allowed = allowed_extra(config)
        self.queue = RolloutQueue()

    async def run(self) -> None:
        """Play the plans. An error goes to whoever waits for the batch that it cost."""
        for step in range(self._first, self._last + 1):
            try:
                batch = await self._sample(step)
            except Exception as error:  # noqa: BLE001 - boundary: it belongs to the loop, which asks for this batch
                self._batch(step).set_exception(error)
                return
            self._batch(step).set_result(batch)

    def close(self) -> None:
        """Drop the batches, and the errors, that nobody asked for."""
        for batch in self._ready.values():
            if batch.done() and not batch.cancelled():
                batch.exception()

    async def batch(self, step: int) -> Batch:
        """Return a plan's batch when it is in. Raise what its rollouts raised."""
        batch = await self._batch(step)
        del self._ready[step]
        return batch

    def consumed(self, batch: Batch) -> None:
        """Take note that a step learned a batch. Raise `QueueError` where one of its rollouts was learned already."""
        step, rollouts = batch.plan.step, batch.rollouts
        self.queue.move(_asked(rollouts.trajectories), State.CONSUMED)
        self.queue.move(_asked([played.trajectory for played in rollouts.flat]), State.REJECTED)
        self.queue.forget(step)
        aside = [played.trajectory.id for played in rollouts.set_aside]
        self._journal.consumed(step, [t.id for t in rollouts.trajectories], aside)

    async def learned(self, version: int) -> None:
        """Take note that this version of the weights is there, so that plans may be played that it keeps within the lag."""
        async with self._moved:
            self._learned = max(self._learned, version)
            self._moved.notify_all()

    @asynccontextmanager
    async def paused(self) -> AsyncIterator[None]:
        """Keep the samplers from the plans: none is played in the body, and one under way is waited for."""
        async with self._samplers:
            yield

    def _batch(self, step: int) -> asyncio.Future[Batch]:
        return self._ready.setdefault(step, asyncio.get_running_loop().create_future())

    async def _sample(self, step: int) -> Batch:
        async with self._moved:
            await self._moved.wait_for(lambda: self._learned >= step - 1 - self._ahead)
        async with self._samplers:
            with self._span("weights", "load", max(0, step - 1 - self._lag)):
                version = await self._calls.serve(step - 1 - self._lag)
            plan = self._source.plan(step)
            rollouts = self._finished_before(plan, version)
            if rollouts is None:
                self._journal.planned(step, version, plan.requests)
                with self._source.halting(), self._span("environments", "rollouts", step):
                    rollouts = await self._play(plan)
                self._source.store(step, rollouts)
                self._journal.finished(step, plan.requests, tally_of(rollouts))
        return Batch(plan, rollouts, self._source.observe(plan, rollouts))

    def _finished_before(self, plan: Plan, version: int) -> Rollouts | None:
        """Return what an earlier process played of the very same plan with the very same weights, if it did."""
        tally = self._journal.finished_before(plan.step, version, plan.requests)
        rollouts = self._source.stored(plan.step, tally) if tally else None
        if rollouts is not None and len(rollouts.encoded) != len(plan.requests):
            return None
        if rollouts is not None:
            ended = [*rollouts.trajectories, *(played.trajectory for played in rollouts.flat)]
            self.queue.restore(plan.step, _asked(ended))
        return rollouts

    async def _play(self, plan: Plan) -> Rollouts:
        step, queue = plan.step, self.queue
        collector = Collector(
            plan.requests,
            config=self._config,
            anchored=plan.anchors,
            more=lambda first, envs, used: self._source.more(step, first, envs, used),
            allowed=self._allowed,
            server_end=lambda: self._calls.server_end,
        )
        queue.add(step, plan.requests)
        playing = _Waves if self._config.rollout.batching == "lockstep" else _Singly
        judged: list[dict[str, float]] = []

        def take(played: Sequence[_Played], metrics: dict[str, float]) -> None:
            judged.append(metrics)
            queue.move([request.id for request, _ in played], State.FINISHED)
            for request, tries in played:
                collector.add(request, tries)
            if drawn := collector.further():
                self._journal.further(step, drawn)
                queue.add(step, drawn)

        try:
            duration_s = await playing(self._calls, self._journal.folder, self._clock, step).play(queue, take)
        except ExceptionGroup as several:
            raise several.exceptions[0] from None
        finally:
            if not collector.is_full:
                queue.abort(step)
        return collector.rollouts(duration_s, judged)


_Played = tuple[RolloutRequest, list[bytes]]
"""A request, and all attempts at it, the one that counts last."""
_Take = Callable[[Sequence[_Played], dict[str, float]], None]


class _Waves:
    """All that waits at once, dealt out to the workers round robin, so that a batch of samples is a function of the plan."""

    def __init__(self, calls: Calls, folder: Path, clock: Callable[[], float], step: int) -> None:
        self._calls, self._folder, self._clock, self._step = calls, folder, clock, step

    async def play(self, queue: RolloutQueue, take: _Take) -> float:
        """Have `take` take wave after wave, judged, in the order of the requests; return the seconds of playing them."""
        duration_s, requests = 0.0, list(iter(queue.take, None))
        while True:
            begun = self._clock()
            played = await self._deal(requests)
            duration_s += self._clock() - begun
            rewarded = await self._calls.judge([tries[-1] for tries in played], self._folder)
            tries = [[*own[:-1], last] for own, last in zip(played, rewarded.encoded, strict=True)]
            take(list(zip(requests, tries, strict=True)), rewarded.metrics)
            requests = list(iter(queue.take, None))
            if not requests:
                return duration_s

    async def _deal(self, requests: list[RolloutRequest]) -> list[list[bytes]]:
        shares = [requests[worker :: len(self._calls.slots)] for worker in range(len(self._calls.slots))]
        async with asyncio.TaskGroup() as group:
            parts = [
                group.create_task(self._calls.play_at(worker, share, self._step))
                for worker, share in enumerate(shares)
                if share
            ]
        results: list[list[bytes]] = [[] for _ in requests]
        for worker, part in enumerate(parts):
            results[worker :: len(shares)] = part.result()
        return results


class _Singly:
    """Each rollout by itself, to the worker with the most free slots, judged as soon as it is in, beside the others."""

    def __init__(self, calls: Calls, folder: Path, clock: Callable[[], float], step: int) -> None:
        self._calls, self._folder, self._clock, self._step = calls, folder, clock, step
        self._free = list(calls.slots)
        self._done: asyncio.Queue[tuple[_Played, dict[str, float]]] = asyncio.Queue()

    async def play(self, queue: RolloutQueue, take: _Take) -> float:
        """Have `take` take every rollout as it comes in; return the seconds from the first to the last."""
        begun, running = self._clock(), 0
        async with asyncio.TaskGroup() as group:
            while True:
                while max(self._free) and (request := queue.take()):
                    worker = self._free.index(max(self._free))
                    self._free[worker] -= 1
                    running += 1
                    group.create_task(self._one(request, worker))
                if not running:
                    return self._clock() - begun
                played, metrics = await self._done.get()
                running -= 1
                take([played], metrics)

    async def _one(self, request: RolloutRequest, worker: int) -> None:
        tries = (await self._calls.play_at(worker, [request], self._step))[0]
        self._free[worker] += 1
        rewarded = await self._calls.judge(tries[-1:], self._folder)
        self._done.put_nowait(((request, [*tries[:-1], *rewarded.encoded]), rewarded.metrics))


def tally_of(rollouts: Rollouts) -> BatchTally:
    """Return what a plan's batch needs beside the records of its rollouts."""
    counts = {name: getattr(rollouts, name) for name in BatchTally.__struct_fields__}
    return BatchTally(**{**counts, "rejected": len(rollouts.rejected)})


def _asked(ended: Sequence[Trajectory]) -> list[str]:
    return [asked_for(trajectory.id) for trajectory in ended]
