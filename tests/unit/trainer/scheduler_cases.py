"""Plans that are given and not drawn, for tests of the scheduler."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Container, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent_runtime.types import RolloutRequest
from trainer.config import TrainConfig
from trainer.rollout.filling import Rollouts
from trainer.rollout.planning import Plan
from trainer.scheduler.collector import More
from trainer.scheduler.journal import BatchTally, Journal
from trainer.scheduler.sampling import Batch, Calls, Sampling


@dataclass
class Given:
    """A source of plans: `requests` of each step, further groups as `more_of` says."""

    requests: Callable[[int], Sequence[RolloutRequest]]
    more_of: More = lambda first, envs, used: []
    anchored: Container[str] = ()
    kept: dict[int, Rollouts] = field(default_factory=dict)
    """What was put on record."""
    observed: list[int] = field(default_factory=list)

    def plan(self, step: int) -> Plan:
        assert self.observed == list(range(self.observed[0], step)) if self.observed else True
        anchors: Any = self.anchored
        return Plan(step, anchors, list(self.requests(step)), [], 0.0)

    def more(
        self, step: int, first: int, envs: Sequence[str], used: Collection[tuple[str, str]]
    ) -> list[RolloutRequest]:
        return self.more_of(first, envs, used)

    def store(self, step: int, rollouts: Rollouts) -> None:
        self.kept[step] = rollouts

    def stored(self, step: int, tally: BatchTally) -> Rollouts | None:
        return self.kept.get(step)

    def observe(self, plan: Plan, rollouts: Rollouts) -> None:
        self.observed.append(plan.step)

    def halting(self) -> AbstractContextManager[None]:
        return nullcontext()


def batches(
    calls: Calls, source: Given, folder: Path, *, config: TrainConfig, steps: int = 1, done: int | None = None
) -> list[Batch]:
    """Consume the batches of the steps after `done`, as a learner that takes no time."""
    journal = Journal(folder, done=done)
    journal.begin()

    async def consumed() -> list[Batch]:
        sampling = Sampling(
            calls, source, journal, config=config, first=(done or 0) + 1, last=steps, clock=time.monotonic
        )
        running = asyncio.get_running_loop().create_task(sampling.run())
        found = []
        for step in range((done or 0) + 1, steps + 1):
            found.append(await sampling.batch(step))
            sampling.consumed(found[-1])
            await sampling.learned(step)
        await running
        assert not +sampling.queue.counts
        return found

    try:
        return asyncio.run(consumed())
    finally:
        journal.close()
