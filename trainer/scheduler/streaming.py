"""The scheduler of `rollout.mode=stream`: a batch is the first finished groups, and weights change while rollouts run.

Groups are let in oldest first, as far ahead as `admission` allows, and a batch takes the oldest of those that are in: no
rollout waits for a slower one, and none is discarded. A group that is in and has no token within the lag any more is set
aside, and so is one without variance where the algorithm replaces those; the next group takes its place. Anchors and pass
rates are moved by a batch's groups as it is formed, with the anchors that they began at.
"""

from __future__ import annotations

import asyncio
from bisect import insort
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext

from agent_runtime.types import RolloutRequest
from trainer.config import TrainConfig
from trainer.rollout.failures import handing_over
from trainer.rollout.filling import Rollouts
from trainer.rollout.filtering import check_share
from trainer.rollout.report import sampled_tokens
from trainer.scheduler.admission import Admission
from trainer.scheduler.collector import allowed_extra, judging
from trainer.scheduler.groups import Group, StreamState, place_of
from trainer.scheduler.journal import Journal
from trainer.scheduler.queue import RolloutQueue, State
from trainer.scheduler.sampling import Batch, Calls, PlanSource, Sampling, Scheduler, Span

__all__ = ["Streaming", "scheduler_of"]


def scheduler_of(
    config: TrainConfig,
    calls: Calls,
    source: PlanSource,
    journal: Journal,
    *,
    done: int,
    begun: StreamState | None,
    clock: Callable[[], float],
    span: Span = lambda *_: nullcontext(),
) -> Scheduler:
    """Return what plays the steps after `done`; a stream goes on with what it had `begun`."""
    if config.rollout.streams:
        return Streaming(
            calls, source, journal, config=config, done=done, begun=begun, clock=clock, span=span
        )
    first, last = done + 1, config.steps
    return Sampling(calls, source, journal, config=config, first=first, last=last, clock=clock, span=span)


class Streaming:
    """A `Scheduler`. One event loop only; `run` is its one writer."""

    def __init__(
        self,
        calls: Calls,
        source: PlanSource,
        journal: Journal,
        *,
        config: TrainConfig,
        done: int,
        begun: StreamState | None,
        clock: Callable[[], float],
        span: Span,
    ) -> None:
        """`clock()` says the time in seconds."""
        self._calls, self._source, self._journal, self._config = calls, source, journal, config
        self._clock, self._span = clock, span
        begun = begun or StreamState(plans=done)
        self._plans, self._drawn = begun.plans, begun.groups
        self._waiting = deque(Group.reopened(state) for state in begun.open)
        """Drawn, and not let in."""
        self._playing: dict[str, Group] = {}
        """By id, those that were let in and are not in."""
        self._ready: list[Group] = []
        """In, by number. None is too old for `_oldest`."""
        self._oldest = -1
        self._flat: list[Group] = []
        self._too_old: list[Group] = []
        """Both are set aside for the next batch to tell of."""
        self._formed: dict[int, list[tuple[Group, State]]] = {}
        """By step, what became of a batch's groups once it is learned."""
        self._step = self._done = done
        """The last step that a batch was formed for, and the last that was done before this process."""
        self._learned, self._shown = done, -1
        """The newest version, and the one that the samplers hold."""
        self._admission = Admission(config, done=done)
        self._allowed = allowed_extra(config)
        self._free = list(calls.slots)
        self._asked: tuple[int, asyncio.Future[Batch]] | None = None
        self._error: Exception | None = None
        self._changed, self._published = asyncio.Event(), asyncio.Event()
        self._samplers = asyncio.Lock()
        self._formed_s = clock()
        self.queue = RolloutQueue()

    # -- for the loop -----------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Play until the last batch is formed. An error goes to whoever waits for a batch, now or next."""
        try:
            self._go_on()
            await self._load()
            async with asyncio.TaskGroup() as tasks:
                beside = [tasks.create_task(self._keep_loaded()), tasks.create_task(self._calls.fails())]
                while self._step < self._config.steps:
                    self._let_in()
                    self._start(tasks)
                    if not self._form():
                        await self._changed.wait()
                    self._changed.clear()
                for task in beside:
                    task.cancel()
        except Exception as error:  # noqa: BLE001 - boundary: it belongs to the loop, which asks for batches
            self._fail(error)

    async def batch(self, step: int) -> Batch:
        """Return the batch of the step that comes next when enough groups are in. Raise what ended the rollouts."""
        if self._error is not None:
            raise self._error
        done: asyncio.Future[Batch] = asyncio.get_running_loop().create_future()
        self._asked = step, done
        self._changed.set()
        return await done

    def consumed(self, batch: Batch) -> None:
        """Take note that a step learned a batch. Raise `QueueError` where one of its rollouts was learned already."""
        step, rollouts = batch.plan.step, batch.rollouts
        formed = self._formed.pop(step)
        for group, state in formed:
            self.queue.move(group.ids, state)
        for plan in {group.plan for group, _ in formed}:
            if not self.queue.of(plan, State.PLANNED, State.RUNNING, State.FINISHED):
                self.queue.forget(plan)
        aside = [played.trajectory.id for played in rollouts.set_aside]
        anchors = {name: place_of(anchor) for name, anchor in batch.plan.anchors.items()}
        self._journal.consumed(step, [t.id for t in rollouts.trajectories], aside, anchors)

    async def learned(self, version: int) -> None:
        """Take note that this version of the weights is there: samplers load it, and further groups may be let in."""
        if version > self._learned:
            self._learned = version
            self._admission.learned(version)
            self._published.set()
            self._changed.set()

    @asynccontextmanager
    async def paused(self) -> AsyncIterator[None]:
        """Have the samplers keep the weights that they have in the body; rollouts go on."""
        async with self._samplers:
            yield

    def close(self) -> None:
        """End what still waits for a batch."""
        if self._asked is not None:
            self._asked[1].cancel()

    # -- what `run` does --------------------------------------------------------------------------------------

    def _go_on(self) -> None:
        """Take the groups that a process before left on record, of weights that the run still has; forget all others."""
        for group in self._waiting:
            for encoded in self._source.kept(group.number):
                group.add_record(encoded)
            if not group.is_whole or group.newest > self._done:
                group.tries.clear()
        self._source.forget_kept(but={group.number for group in self._waiting if group.tries})

    async def _keep_loaded(self) -> None:
        while True:
            await self._published.wait()
            self._published.clear()
            await self._load()

    async def _load(self) -> None:
        """Have the samplers take the newest weights, with requests under way."""
        async with self._samplers:
            if self._shown < self._learned:
                with self._span("weights", "load", self._learned):
                    self._shown = await self._calls.serve(self._learned)

    def _let_in(self) -> None:
        while self._admission.is_open:
            if not self._waiting:
                self._draw()
            group = self._waiting.popleft()
            self._admission.let_in()
            if group.is_whole:
                self.queue.restore(group.plan, group.ids)
                self._take(group)
            else:
                self._journal.admitted(group.plan, self._learned, group.ids)
                self.queue.add(group.plan, group.requests)
                self._playing[group.id] = group

    def _draw(self) -> None:
        self._plans += 1
        plan = self._source.plan(self._plans)
        own: dict[str, list[RolloutRequest]] = {}
        for request in plan.requests:
            own.setdefault(request.group_id, []).append(request)
        for name, requests in own.items():
            self._waiting.append(Group(self._drawn, plan.step, requests, plan.anchors.get(name)))
            self._drawn += 1

    def _start(self, tasks: asyncio.TaskGroup) -> None:
        while max(self._free) and (request := self.queue.take()):
            worker = self._free.index(max(self._free))
            self._free[worker] -= 1
            tasks.create_task(self._play(request, worker))

    async def _play(self, request: RolloutRequest, worker: int) -> None:
        group = self._playing[request.group_id]
        with self._span("environments", "rollouts", group.plan):
            tries = (await self._calls.play_at(worker, [request], group.plan))[0]
        self._free[worker] += 1
        self._changed.set()
        rewarded = await self._calls.judge(tries[-1:], self._journal.folder)
        group.add(request.id, [*tries[:-1], *rewarded.encoded], rewarded.metrics)
        self.queue.move([request.id], State.FINISHED)
        if group.is_whole:
            del self._playing[group.id]
            self._source.keep(group.number, group.encoded)
            self._journal.came_in(group.plan, group.ids)
            self._take(group)

    def _take(self, group: Group) -> None:
        """Put a group that is in where it belongs."""
        flat = group.anchor is None and group.is_flat(self._config.filter)
        if flat and len(self._flat) < self._allowed:
            self._flat.append(group)
            self._admission.give_back()
        elif group.is_too_old(self._oldest):
            self._too_old.append(group)
            self._admission.give_back()
        else:
            insort(self._ready, group, key=lambda each: each.number)
        self._changed.set()

    def _form(self) -> bool:
        """Give the loop its batch where it waits for one and enough groups are in; return whether anything changed."""
        if self._asked is None:
            return False
        step, done = self._asked
        aged = self._set_aside_too_old(step)
        count = self._config.rollout.groups_per_step
        if len(self._ready) < count:
            return aged
        learned, self._ready = self._ready[:count], self._ready[count:]
        batch = self._batch(step, learned)
        self._step, self._asked = step, None
        done.set_result(batch)
        self._flat, self._too_old = [], []
        return True

    def _set_aside_too_old(self, step: int) -> bool:
        oldest = self._config.rollout.oldest(step)
        assert oldest is not None
        if (
            oldest == self._oldest
        ):  # nothing has aged since: to look each time a rollout comes in is quadratic
            return False
        self._oldest = oldest
        aged = [group for group in self._ready if group.is_too_old(oldest)]
        self._ready = [group for group in self._ready if group not in aged]
        self._too_old += aged
        for _ in aged:
            self._admission.give_back()
        return bool(aged)

    def _batch(self, step: int, learned: list[Group]) -> Batch:
        now = self._clock()
        rollouts, self._formed_s = self._rollouts(learned, now - self._formed_s), now
        anchors = {group.id: group.anchor for group in [*learned, *self._too_old] if group.anchor}
        requests = [request for group in learned for request in group.requests]
        plan = self._source.learning(step, requests, anchors)
        self._source.store(step, rollouts)
        after = self._source.observe(plan, rollouts)
        self._journal.formed(step)
        self._formed[step] = [
            *((group, State.CONSUMED) for group in learned),
            *((group, State.REJECTED) for group in self._flat),
            *((group, State.TOO_OLD) for group in self._too_old),
        ]
        left = sorted([*self._ready, *self._playing.values(), *self._waiting], key=lambda each: each.number)
        return Batch(
            plan, rollouts, after, StreamState(self._plans, self._drawn, [each.open() for each in left])
        )

    def _rollouts(self, learned: list[Group], duration_s: float) -> Rollouts:
        """Return what the batch's groups came to, and those that were set aside. Raise `Halted` where too many failed."""
        groups, options = [*learned, *self._flat, *self._too_old], self._config.filter
        rejected = [played for group in groups for played in group.rejected]
        lost = [played for group in groups for played in group.lost(options)]
        troubled, asked = (
            sum(group.troubled(options) for group in groups),
            sum(len(group.ids) for group in groups),
        )
        with self._source.halting(), handing_over([each for group in groups for each in group.encoded]):
            check_share(
                [played.trajectory for played in [*rejected, *lost]],
                troubled=troubled,
                lost=len(lost),
                asked=asked,
                config=self._config,
                server_end=self._calls.server_end,
            )
        counted = [played for group in learned for played in group.played]
        found = Rollouts(
            encoded=[played.encoded for played in counted],
            trajectories=[played.trajectory for played in counted],
            rejected=rejected,
            flat=[played for group in self._flat for played in group.played],
            too_old=[played for group in self._too_old for played in group.played],
            flat_groups=len(self._flat) + sum(not each.anchor and each.is_flat(options) for each in learned),
            extra_groups=len(self._flat),
            troubled_share=troubled / asked,
            duration_s=duration_s,
        )
        found.tokens = sampled_tokens(found.played)
        found.reward_metrics = judging([own for group in groups for own in group.judged], found.seen)
        return found

    def _fail(self, error: BaseException) -> None:
        """Have whoever waits for a batch, or asks for the next, raise what ended the rollouts."""
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        if not isinstance(error, Exception):
            raise error
        self._error = error
        if self._asked is not None and not self._asked[1].done():
            self._asked[1].set_exception(error)
