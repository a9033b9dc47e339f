"""How near the scheduler is to the best order, what it costs, and what a kill costs, all in virtual time.

`python -m benchmarks.scheduler [--quick]`. Scheduler, queue, collector and journal are the trainer's
(`trainer.simulator`). The workload is like software tasks: 16 groups of 8 rollouts a step, each 5 to 20 turns of 100
tokens (median; 99th percentile 800) at 50 tokens a second and a tool call of 1 s (median; log-normal, 99th percentile
30 s), on 64 slots, half of a step's rollouts; `batching=eager`; a learner of 60 s a step. `pipeline` has lag 1.
Medians over seeds. The last line is one JSON object:

- `over_clairvoyant`: by mode, time over that of longest-first with perfect knowledge of every duration, under the
  same admission: plans one after the other, none before its lag allows (goal: at most 1.10). How long a rollout takes
  is not known before it ends, and here no rollout tells of another, so that all orders are as good on average;
- `over_clairvoyant_by_task`: the same where half of the variance of log latencies is between tasks;
- `lower_bound_ratio`: by mode, time over max(sum of all work / slots, steps x learner seconds), which no order beats;
- `idle_share`: by mode, of samplers, environments (slots) and the learner;
- `events_per_core_s`: rollouts that the scheduler starts, takes in and puts into batches per second of processor
  time, with 10,240 in flight; calls and judges are timers. `core_at_100`: share of a core at 100 a second (goal: less
  than 0.10);
- `memory_growth_mib`: of the process, from step 500 to step 2,000 of one run (goal: less than 4);
- `kills`, `lost`, `twice`, `differ`: by mode, how often a run was dropped at a random round of the loop (half of the
  journal's lines that were just being written are torn) to go on from its last checkpoint; rollouts that the journal
  tells were lost or learned twice; runs whose end differs from the undisturbed one's (goal: 200 kills of each mode,
  and 0 of the others).
"""

from __future__ import annotations

import asyncio
import gc
import heapq
import math
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from statistics import median
from tempfile import TemporaryDirectory
from time import process_time
from typing import Any

from agent_runtime.store import encode
from agent_runtime.types import RolloutRequest
from benchmarks.scaffold import finish, parser_of, say
from trainer.config import TrainConfig
from trainer.reward.router import Rewarded
from trainer.rollout.planning import Plan
from trainer.scheduler.journal import JOURNAL, Journal, audit, entries
from trainer.scheduler.sampling import Sampling
from trainer.simulator.clock import VirtualLoop, run_virtually
from trainer.simulator.fleet import FleetTimes
from trainer.simulator.parts import Plans, Script, record_of, script_of
from trainer.simulator.run import Report, Saved, simulate

MODES = {"sync": 0, "pipeline": 1}
LEARN_S, TOKENS_PER_S = 60.0, 50.0
SOFTWARE = FleetTimes.model_validate(
    {
        "sampler": {"tokens_per_s": 1e9, "tokens_per_s_of_one": TOKENS_PER_S},
        "environment": {"turns": {"low": 5, "high": 20}, "step_s": {"median": 1, "p99": 30}},
        "learner": {"step_s": LEARN_S},
    }
)
_HALF = math.sqrt(0.5)
BY_TASK = FleetTimes.model_validate(
    {
        "sampler": {"tokens_per_s": 1e9, "tokens_per_s_of_one": TOKENS_PER_S},
        "environment": {
            "turns": {"low": 5, "high": 20},
            "step_s": {"median": 1, "p99": 30**_HALF},
            "task_factor": {"median": 1, "p99": 30**_HALF},
        },
        "learner": {"step_s": LEARN_S},
    }
)
FAULTY = FleetTimes.model_validate(
    {
        "environment": {"turns": {"low": 1, "high": 3}},
        "learner": {"step_s": {"low": 5, "high": 60}, "other_s": 1},
        "faults": {"lost": 0.05, "refused": 0.05, "slow": 0.1},
        "reward_s": {"low": 0, "high": 2},
        "sampler": {"load_s": 2},
    }
)
MOST_OVER, MOST_OF_A_CORE, MOST_GROWTH_MIB = 1.10, 0.10, 4.0


def settings(mode: str, **changes: Any) -> TrainConfig:
    own = {"mode": mode, "staleness": MODES[mode], "batching": "eager", "max_failure_rate": 1}
    rollout = {**own, **changes.pop("rollout", {})}
    return TrainConfig.model_validate({"rollout": rollout, **changes})


# -- order -----------------------------------------------------------------------------------------------------


class Remembered(Plans):
    """Plans that remember what they drew."""

    def __init__(self, config: TrainConfig) -> None:
        super().__init__(config)
        self.drawn: list[list[RolloutRequest]] = []

    def plan(self, step: int) -> Plan:
        plan = super().plan(step)
        self.drawn.append(plan.requests)
        return plan


def work_s(script: Script) -> float:
    """Return how long a rollout takes that shares its engine with nobody."""
    return script.env_s + sum(tokens for tokens, _ in script.turns) / TOKENS_PER_S


def longest_first_s(durations: Sequence[float], slots: int) -> float:
    """Return when rollouts are done that start longest first, each in the slot that is free first."""
    free = [0.0] * slots
    for duration in sorted(durations, reverse=True):
        heapq.heapreplace(free, free[0] + duration)
    return max(free)


def clairvoyant_s(plans: Sequence[Sequence[float]], slots: int, ahead: int) -> float:
    """Return when a run ends whose plans are played longest first, one after the other, each at most `ahead` + 1 versions
    after the newest."""
    played, learned = 0.0, [0.0]
    for step, durations in enumerate(plans, start=1):
        begin = max(played, learned[max(0, step - 1 - ahead)])
        played = begin + longest_first_s(durations, slots)
        learned.append(max(played, learned[-1]) + LEARN_S)
    return learned[-1]


def order(mode: str, seed: int, steps: int, fleet: FleetTimes) -> tuple[float, float, dict[str, float]]:
    """Return time over the clairvoyant's, time over the lower bound, and the idle shares of one run."""
    config = settings(
        mode, steps=steps, seed=seed, rollout={"concurrency": 32, "groups_per_step": 16, "group_size": 8}
    )
    plans = Remembered(config)
    with TemporaryDirectory() as folder:
        report = simulate(config, fleet, Path(folder), Saved(plans))
    durations = [[work_s(script_of(request, fleet)) for request in drawn] for drawn in plans.drawn]
    slots = config.rollout.workers * config.rollout.concurrency
    best_s = clairvoyant_s(durations, slots, MODES[mode])
    bound_s = max(sum(map(sum, durations)) / slots, steps * LEARN_S)
    return report.total_s / best_s, report.total_s / bound_s, report.summary()["idle"]


def orders(seeds: int, steps: int) -> dict[str, Any]:
    found: dict[str, Any] = {
        name: {}
        for name in ("over_clairvoyant", "over_clairvoyant_by_task", "lower_bound_ratio", "idle_share")
    }
    for mode in MODES:
        over, ratio, idle = zip(*(order(mode, seed, steps, SOFTWARE) for seed in range(seeds)), strict=True)
        by_task = [order(mode, seed, steps, BY_TASK)[0] for seed in range(seeds)]
        found["over_clairvoyant"][mode] = round(median(over), 3)
        found["over_clairvoyant_by_task"][mode] = round(median(by_task), 3)
        found["lower_bound_ratio"][mode] = round(median(ratio), 3)
        found["idle_share"][mode] = {name: round(median(own[name] for own in idle), 3) for name in idle[0]}
        say(f"{mode}: over clairvoyant {min(over):.3f} to {max(over):.3f} over {seeds} seeds")
    return found


# -- cost ------------------------------------------------------------------------------------------------------


class Timers:
    """Calls that are timers, so that nothing but the scheduler takes processor time."""

    server_end = ""

    def __init__(self, slots: list[int], requests: Sequence[RolloutRequest]) -> None:
        self.slots, random = slots, Random(0)
        scripts = [(request, script_of(request, SOFTWARE)) for request in requests]
        self._answers = {
            request.id: encode(record_of(request, script, 1, {0: 0})) for request, script in scripts
        }
        self._delays = {request.id: random.lognormvariate(3, 1) for request in requests}

    async def serve(self, version: int) -> int:
        return version

    async def judge(self, encoded: Sequence[bytes], run_folder: Path) -> Rewarded:
        return Rewarded(list(encoded))

    async def play_at(self, worker: int, requests: Sequence[RolloutRequest], step: int) -> list[list[bytes]]:
        (request,) = requests
        await asyncio.sleep(self._delays[request.id])
        return [[self._answers[request.id]]]


def events_per_core_s(groups: int) -> float:
    """Play one plan of `groups` groups of 8 on 20 workers of 512 slots."""
    config = settings(
        "sync",
        steps=1,
        rollout={"workers": 20, "concurrency": 512, "groups_per_step": groups, "group_size": 8},
    )
    plans = Plans(config)
    calls = Timers([512] * 20, plans.plan(1).requests)

    async def played(journal: Journal) -> float:
        clock = asyncio.get_running_loop().time
        sampling = Sampling(calls, plans, journal, config=config, first=1, last=1, clock=clock)
        running, began = asyncio.create_task(sampling.run()), process_time()
        sampling.consumed(await sampling.batch(1))
        spent_s = process_time() - began
        await running
        return spent_s

    with TemporaryDirectory() as folder:
        journal = Journal(Path(folder), done=None)
        journal.begin()
        try:
            return groups * 8 / run_virtually(played(journal))
        finally:
            journal.close()


def rss_mib() -> float:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def memory_growth_mib(steps: int = 2000) -> float:
    """Return by how much the process grows over the last three quarters of a run."""
    config = settings(
        "pipeline",
        steps=steps,
        rollout={"groups_per_step": 2, "group_size": 2},
        filter={"dynamic": "off"},
        checkpoint={"every": 10},
    )
    saved, seen = Saved(Plans(config)), list[float]()

    def look(turn: int) -> None:
        if len(seen) < 2 and saved.step >= (steps // 4, steps - 10)[len(seen)]:
            seen.append(rss_mib())

    with TemporaryDirectory() as folder:
        simulate(config, FAULTY, Path(folder), saved, VirtualLoop(look))
    return round(seen[1] - seen[0], 2)


# -- kills -----------------------------------------------------------------------------------------------------


class Killed(BaseException):
    """What ends a process at once."""


def kill_at(last: int, journal: Path, saved: Saved, random: Random) -> Callable[[int], None]:
    """End a loop at round `last`, unless the run is done; `Killed` holds what is then in the journal, its last line torn or
    not."""
    size = journal.stat().st_size if journal.exists() else 0

    def look(turn: int) -> None:
        nonlocal size
        if turn == last and saved.step < saved.plans.config.steps:
            data = journal.read_bytes()
            raise Killed(data[: random.randint(size, len(data))] if random.random() < 0.5 else data)
        if turn > 1:
            size = journal.stat().st_size

    return look


def killed(mode: str, kills: int) -> dict[str, int]:
    """Kill runs until there were so many kills; return what they lost."""
    found = {"kills": 0, "lost": 0, "twice": 0, "differ": 0}
    random, number = Random(mode), 0
    while found["kills"] < kills:
        batching, number = ("eager", "lockstep")[number % 2], number + 1
        sizes = {"groups_per_step": 4, "group_size": 2, "concurrency": 2, "batching": batching}
        config = settings(
            mode, steps=6, seed=number, rollout=sizes, filter={"dynamic": "on"}, checkpoint={"every": 2}
        )
        rounds = 0

        def count(turn: int) -> None:
            nonlocal rounds
            rounds = turn

        with TemporaryDirectory() as folder:
            whole = simulate(config, FAULTY, Path(folder), loop=VirtualLoop(count))
        for _ in range(5):
            with TemporaryDirectory() as folder:
                report = _until_done(config, Path(folder), rounds, random, found)
                journal = audit(entries(Path(folder) / JOURNAL))
            found["lost"] += len(journal.lost)
            found["twice"] += len(journal.twice)
            found["differ"] += report.weights != whole.weights or journal.consumed != 6 * 8
    return found


def _until_done(
    config: TrainConfig, folder: Path, rounds: int, random: Random, found: dict[str, int]
) -> Report:
    """Kill a run once, and then as often as chance has it, until it is done."""
    saved, journal = Saved(Plans(config)), folder / JOURNAL
    while True:
        last = random.randint(2, rounds - 1)
        try:
            return simulate(config, FAULTY, folder, saved, VirtualLoop(kill_at(last, journal, saved, random)))
        except Killed as kill:
            found["kills"] += 1
            journal.write_bytes(kill.args[0])


def main() -> int:
    options = parser_of(
        __doc__, quick="4 seeds of 10 steps instead of 20 of 20, and fewer rollouts"
    ).parse_args()
    found = orders(*(4, 10) if options.quick else (20, 20))
    rate = events_per_core_s(1600 if options.quick else 4000)
    found["events_per_core_s"], found["core_at_100"] = round(rate), round(100 / rate, 4)
    found["memory_growth_mib"] = memory_growth_mib()
    for mode in MODES:
        for name, count in killed(mode, 200).items():
            found.setdefault(name, {})[mode] = count
    bad = (
        max(found["over_clairvoyant"].values()) > MOST_OVER
        or found["core_at_100"] >= MOST_OF_A_CORE
        or found["memory_growth_mib"] >= MOST_GROWTH_MIB
        or any(found[name][mode] for name in ("lost", "twice", "differ") for mode in MODES)
    )
    return finish(found, bad=bad)


if __name__ == "__main__":
    sys.exit(main())
