"""A virtual week of a run in which something breaks every few minutes: `benchmarks.kills --part week`.

What runs is the trainer's scheduler, queue, collector, journal and waiting for ROCK, in virtual time (`trainer.simulator`),
with 16 rollouts a step, a learner of 25 to 55 s, three samplers with a worker each, and a checkpoint every fifth step. In
every virtual hour each of these strikes once, at a random time; one that finds the run down strikes when it is up again:

- `rock`: ROCK is away for ten minutes. Sampling waits for it;
- `rank`: the learner dies, so that the run ends at once, wherever it is, and is resumed;
- `sampler`: a sampler answers nothing more. A stream finds that out when it did not take new weights for 120 s, asks
  another one, and starts a third; in the other modes whoever is told that the run is late (after 300 s) ends it;
- `disk`: it takes half of a line of the journal, or no checkpoint, and nothing more for up to two minutes;
- `node`: a node is gone, with a sampler, its worker and all that they play. The run halts and is resumed.

Of each mode: `updates` of `updates_expected`; `faults` that struck; `lives`, processes that the run took, and `replaced`
samplers; `lost`, `twice` and `over_lag`; the account of `sampled` rollouts, which are `learned`, `set_aside` or `again` (a
death or an outage cost them), and `differ`, steps of which the journal tells other rollouts than the learner got;
`journal_mb`; `memory_mb` of the process after a tenth of the updates and at the end, and `memory_growth_mb`; `wall_s`, and
`processor_s` of it.
"""

from __future__ import annotations

import asyncio
import errno
import os
import time
from collections import Counter, deque
from collections.abc import Collection, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from io import FileIO
from math import inf
from multiprocessing import get_context
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, cast
from unittest.mock import patch

from agent_runtime.types import RolloutRequest
from benchmarks.scaffold import say
from benchmarks.scheduler import rss_mib, settings
from trainer.config import TrainConfig
from trainer.errors import Halted, RunFolderError
from trainer.files.appended import Appended
from trainer.rollout.filling import Rollouts
from trainer.rollout.planning import Plan
from trainer.scheduler.journal import JOURNAL, audit, entries, learned_batches
from trainer.scheduler.sampling import Batch
from trainer.simulator.clock import VirtualLoop
from trainer.simulator.fleet import FleetTimes
from trainer.simulator.parts import Engine, Plans, SimulatedCalls, Weights
from trainer.simulator.run import Saved, simulate

__all__ = ["simulated_week", "week"]

STEPS_AN_HOUR = {"sync": 34, "pipeline": 57, "stream": 65}
"""So that a run takes a little longer than it is asked to."""
WEEK_H, QUICK_H, HOUR_S = 168, 3, 3600.0
GROUPS, GROUP_SIZE, EVERY = 4, 4, 5
KINDS = ("rock", "rank", "sampler", "disk", "node")
AWAY_S, LATE_S, LOAD_S, START_S, RESTART_S, MOST_FULL_S = 600.0, 300.0, 120.0, 30.0, 60.0, 120.0
"""`LATE_S` is the default of `guard.late_s`, `LOAD_S` what a stream's sampler has for a load."""
FLEET = FleetTimes.model_validate(
    {
        "sampler": {"tokens_per_s": 2000, "tokens": {"median": 50, "p99": 200}, "load_s": 2},
        "environment": {"turns": {"low": 1, "high": 3}, "step_s": {"median": 1, "p99": 10}, "make_s": 1},
        "learner": {"step_s": {"low": 25, "high": 55}, "other_s": 1},
        "faults": {"lost": 0.01, "refused": 0.01},
    }
)


class Dead(BaseException):
    """What ends a process at once."""


class NoAnswer(Exception):
    """A sampler is gone in whose place others answer."""


class Fate:
    """What strikes when, and what is broken. `loop` is that of the process that lives."""

    loop: VirtualLoop

    def __init__(self, mode: str, hours: int) -> None:
        self.streams, self.random = mode == "stream", Random(mode)
        draw = self.random.random
        self.to_come = deque(
            sorted((HOUR_S * (hour + draw()), kind) for hour in range(2 * hours) for kind in KINDS)
        )
        self.struck: Counter[str] = Counter()
        self.sampled = self.replaced = 0
        self.dies_s = inf
        self.back_s = 0.0
        """When ROCK is there again."""
        self.full, self.free_s = "", 0.0
        """What the disk does not take: `lines`, which is nothing at all, or `saves`; and from when on it does again."""

    def look(self, turn: int) -> None:
        """End the process when its time has come."""
        if self.loop.time() >= self.dies_s:
            self.dies_s = inf
            raise Dead

    def refuses(self, *what: str) -> bool:
        """Return whether the disk does not take these; it takes them again a while after that was first asked."""
        now = self.loop.time()
        if self.full not in what:
            return False
        if not self.free_s:
            self.struck["disk"] += 1
            self.free_s = now + self.random.uniform(0, MOST_FULL_S)
        elif now >= self.free_s:
            self.full, self.free_s = "", 0.0
        return bool(self.full)


class Disk(Saved):
    """A disk that can be full as a checkpoint is written; it notes the memory after a tenth of the steps and at the end."""

    def __init__(self, config: TrainConfig, fate: Fate) -> None:
        super().__init__(Told(config))
        self.fate, self.memory_mb = fate, list[float]()

    def save(self, batch: Batch, weights: Weights, every: int) -> None:
        """Take a checkpoint, or raise as a run does."""
        if self.fate.refuses("saves", "lines"):
            raise RunFolderError("cannot write a checkpoint: the disk is full")
        super().save(batch, weights, every)
        steps = self.plans.config.steps
        if len(self.memory_mb) < 2 and self.step >= (steps // 10, steps)[len(self.memory_mb)]:
            self.memory_mb.append(round(rss_mib(), 1))


class TightFile(FileIO):
    """A file on such a disk, which takes half of the line that it has no more room for."""

    def __init__(self, path: Path, fate: Fate) -> None:
        super().__init__(path, "ab")
        self._fate = fate

    def write(self, data: Any) -> int:
        """Write as much as there is room for."""
        begins = not self._fate.free_s
        if not self._fate.refuses("lines"):
            return super().write(data)
        if begins:
            return super().write(data[: len(data) // 2])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class Tight(Appended):
    """A journal in such a file."""

    def __init__(self, fate: Fate, path: Path) -> None:
        self._file = TightFile(path, fate)


class Told(Plans):
    """Plans that remember of each batch a digest of what is in it."""

    def __init__(self, config: TrainConfig) -> None:
        super().__init__(config)
        self.told: dict[int, int] = {}

    def observe(self, plan: Plan, rollouts: Rollouts) -> str:
        """Remember it."""
        aside = [played.trajectory.id for played in rollouts.set_aside]
        self.told[plan.step] = digest([t.id for t in rollouts.trajectories], aside)
        return super().observe(plan, rollouts)


def digest(learned: Collection[str], aside: Collection[str]) -> int:
    return hash((frozenset(learned), frozenset(aside)))


class Breaking(Engine):
    """A sampler that can stop answering or be gone; `all` are those that may answer in its place."""

    is_hung, gone = False, cast("Exception | None", None)
    all: list[Any]

    async def sample(self, tokens: float) -> float:
        """Sample, or have another one do so. Raise why it is gone with all who ask it."""
        asked = self
        while True:
            try:
                if asked.gone:
                    raise asked.gone
                return await super(Breaking, asked).sample(tokens)
            except NoAnswer:
                asked = next(each for each in self.all if not each.gone)

    def lose(self, why: Exception) -> None:
        """End, with all that is under way."""
        self.gone = why
        for *_, done in self._jobs:
            if not done.done():
                done.set_exception(why)
        self._jobs.clear()

    def _finish(self) -> None:
        if not self.is_hung:
            super()._finish()


class BreakingCalls(SimulatedCalls):
    """Calls of a process, in which what fate has in store strikes."""

    def __init__(self, fate: Fate, config: TrainConfig, fleet: FleetTimes, weights: Weights) -> None:
        super().__init__(config, fleet, weights)
        self._fate = fate
        for number in range(len(self.engines)):
            self._begin(number)
        self._wait()

    def _begin(self, number: int) -> None:
        self.engines[number] = engine = Breaking(self._fleet.sampler)
        engine.all = self.engines

    def _wait(self) -> None:
        if self._fate.to_come:
            later_s = max(self._fate.loop.time() + 1, self._fate.to_come[0][0])
            self._fate.loop.call_at(later_s, self._strike)

    def _strike(self) -> None:
        fate, now = self._fate, self._fate.loop.time()
        _, kind = fate.to_come.popleft()
        self._wait()
        engine = cast("Breaking", fate.random.choice(self.engines))
        if kind == "disk":  # it strikes with the first thing that is written
            fate.full = fate.random.choice(["lines", "saves"])
            return
        fate.struck[kind] += 1
        if kind == "rock":
            fate.back_s = now + AWAY_S
        elif kind == "node":
            engine.lose(Halted("a node is gone: worker and sampler died"))
        elif kind == "rank":
            fate.dies_s = now
        else:
            engine.is_hung = True
            if not fate.streams:
                fate.dies_s = min(fate.dies_s, now + LATE_S)
                fate.loop.call_at(fate.dies_s, lambda: None)  # so that time stops there

    async def serve(self, version: int) -> int:
        """Have the samplers take weights. A stream replaces one that does not answer, others wait for it."""
        held = await super().serve(version)
        for number, engine in enumerate(cast("list[Breaking]", self.engines)):
            if engine.is_hung and not engine.gone:
                await asyncio.sleep(LOAD_S if self._fate.streams else inf)
                engine.lose(NoAnswer())
                self._fate.replaced += 1
                self._fate.loop.call_later(START_S, self._begin, number)
        return held

    async def play_at(
        self, worker: int, requests: Sequence[RolloutRequest], policy_step: int
    ) -> list[list[bytes]]:
        """Play rollouts, and count them."""
        try:
            played = await super().play_at(worker, requests, policy_step)
        except ExceptionGroup as several:  # of rollouts side by side
            raise several.exceptions[0] from None
        self._fate.sampled += sum(map(len, played))
        return played

    def _away_s(self) -> float:
        return max(0.0, self._fate.back_s - self._fate.loop.time())


def week(mode: str, hours: int = WEEK_H) -> dict[str, Any]:
    """Run so many virtual hours; return what became of everything."""
    began, spent, steps = time.monotonic(), time.process_time(), hours * STEPS_AN_HOUR[mode]
    sizes = {
        "groups_per_step": GROUPS,
        "group_size": GROUP_SIZE,
        "workers": 3,
        "engines": 3,
        "concurrency": 8,
    }
    config = settings(mode, steps=steps, rollout=sizes, filter={"dynamic": "on"}, checkpoint={"every": EVERY})
    fate = Fate(mode, hours)
    saved, lives, now = Disk(config, fate), 1, 0.0
    with (
        TemporaryDirectory() as name,
        patch("trainer.scheduler.journal.Appended", partial(Tight, fate)),
    ):
        folder = Path(name)
        while not _lives(config, folder, saved, VirtualLoop(fate.look, begin_s=now)):
            lives, now = lives + 1, max(fate.loop.time(), fate.free_s) + RESTART_S
            if fate.free_s:  # whoever resumes it made room
                fate.full, fate.free_s = "", 0.0
        found, learned = audit(entries(folder / JOURNAL)), learned_batches(folder)
        size = (folder / JOURNAL).stat().st_size
    plans, ended = cast("Told", saved.plans), found.consumed + found.set_aside
    told = {step: digest(entry.rollouts, entry.set_aside) for step, entry in learned.items()}
    return {
        "updates": len(learned),
        "updates_expected": steps,
        "virtual_days": round(fate.loop.time() / 24 / HOUR_S, 2),
        "faults": dict(fate.struck),
        "lives": lives,
        "replaced": fate.replaced,
        "lost": len(found.lost) + len(found.open),
        "twice": len(found.twice),
        "over_lag": saved.over_lag,
        "sampled": fate.sampled,
        "learned": found.consumed,
        "set_aside": found.set_aside,
        "again": fate.sampled - ended,
        "differ": sum(told.get(step) != own for step, own in plans.told.items())
        + (found.consumed != steps * GROUPS * GROUP_SIZE),
        "journal_mb": round(size / 1e6, 2),
        "memory_mb": saved.memory_mb,
        "memory_growth_mb": round(saved.memory_mb[-1] - saved.memory_mb[0], 1),
        "wall_s": round(time.monotonic() - began),
        "processor_s": round(time.process_time() - spent),
    }


def _lives(config: TrainConfig, folder: Path, saved: Disk, loop: VirtualLoop) -> bool:
    """Have one process live; return whether it came to the run's end."""
    fate = saved.fate
    fate.loop, fate.dies_s, refused = loop, inf, fate.struck["disk"]
    try:
        simulate(config, FLEET, folder, saved, loop, partial(BreakingCalls, fate))
    except (Dead, Halted):
        return False
    except RunFolderError:
        if fate.struck["disk"] == refused:  # it had room: what is wrong with the folder stays so
            raise
        return False
    return True


def simulated_week(*, quick: bool = False) -> dict[str, dict[str, Any]]:
    """Run all modes, two at a time, each in a process of its own."""
    hours, found = QUICK_H if quick else WEEK_H, {}
    with ProcessPoolExecutor(2, get_context("spawn"), max_tasks_per_child=1) as pool:
        told = pool.map(week, STEPS_AN_HOUR, [hours] * len(STEPS_AN_HOUR))
        for mode, own in zip(STEPS_AN_HOUR, told, strict=True):
            found[mode] = own
            say(f"week, {mode}: {own}")
    return found
