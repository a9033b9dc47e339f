"""How near the scheduler is to the best order, and what it costs, all in virtual time.

`python -m benchmarks.scheduler [--quick]`. Scheduler, queue, collector and journal are the trainer's
(`trainer.simulator`). The workload is like software tasks: 16 groups of 8 rollouts a step, each 5 to 20 turns of 100
tokens (median; 99th percentile 800) at 50 tokens a second and a tool call of 1 s (median; log-normal, 99th percentile
30 s), on 64 slots, half of a step's rollouts; `batching=eager`; a learner of 60 s a step. `pipeline` has lag 1.
Medians over seeds.

The workload of `stream` was fixed before the first run: 8 groups of 8 rollouts a step; a rollout's environment takes 20 s
(median; log-normal, sigma 1.5: 62 s on average, 99th percentile 656 s) in 4 even turns with 50 tokens each, at 50 tokens a
second; 32 slots, half of a step's rollouts as above; a learner of 60 s a step; lags 1, 2 and 4; 100 steps.
`environments` is another: 128 slots and as many environments, each turn .1 to 30 s (uniform) after 50 tokens, 8 turns a
rollout, 8 groups of 8 a step, a learner of 20 s, lag 4, 100 steps: environments are the bottleneck.

The last line is one JSON object:

- `over_clairvoyant`: by mode, time over that of longest-first with perfect knowledge of every duration, under the
  same admission: plans one after the other, none before its lag allows (goal: at most 1.10). How long a rollout takes
  is not known before it ends, and here no rollout tells of another, so that all orders are as good on average;
- `over_clairvoyant_by_task`: the same where half of the variance of log latencies is between tasks;
- `lower_bound_ratio`: by mode, time over max(sum of all work / slots, steps x learner seconds), which no order beats;
- `idle_share`: by mode, of samplers, environments (slots) and the learner; of `environments` (goal for its environments:
  less than 0.10);
- `stream`: by lag, `speedup_over_batch`: time of `sync` over time of `stream` for as many steps (goals: at least 2.0 at
  lag 2, 2.4 at lag 4); `over_clairvoyant`: time over that of a stream that knows every duration and brings the groups that
  were learned in the best of a few orders, under the same admission (goal: at most 1.10); `over_bound`: time over what no
  schedule of these groups beats (both: `benchmarks/clairvoyant.py`); `sustained_over_bound`: the same of the first nine
  tenths of the steps, because at its end a run has nothing to play beside its longest rollout; `last_step_share`: of the
  time, that of the last step; `too_old`: share of the tokens that were played and not learned, being older than the lag;
  `lag`: mean over the tokens; `idle_*`;
- `events_per_core_s`: rollouts that the scheduler starts, takes in and puts into batches per second of processor
  time, with 10,240 in flight; calls and judges are timers. `core_at_100`: share of a core at 100 a second (goal: less
  than 0.10);
- `memory_growth_mib`: of the process, from step 500 to step 2,000 of one run (goal: less than 4).
"""

from __future__ import annotations

import asyncio
import gc
import math
import os
import sys
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from random import Random
from statistics import NormalDist, median
from tempfile import TemporaryDirectory
from time import process_time
from typing import Any, NoReturn

from agent_runtime.store import encode
from agent_runtime.types import RolloutRequest
from benchmarks.clairvoyant import Rule, plans_s, stream_bound_s, stream_s
from benchmarks.scaffold import finish, parser_of, say
from trainer.config import TrainConfig
from trainer.reward.router import Rewarded
from trainer.rollout.planning import Plan
from trainer.scheduler.journal import JOURNAL, Journal, entries
from trainer.scheduler.sampling import Sampling
from trainer.simulator.clock import VirtualLoop, run_virtually
from trainer.simulator.fleet import FleetTimes
from trainer.simulator.parts import Plans, Script, record_of, script_of
from trainer.simulator.run import Report, Saved, simulate

MODES = {"sync": 0, "pipeline": 1}
LAGS = (1, 2, 4)
SIGMA, MEDIAN_S, TURNS = 1.5, 20.0, 4
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
HEAVY_TAILED = FleetTimes.model_validate(
    {
        "sampler": {"tokens_per_s": 1e9, "tokens_per_s_of_one": TOKENS_PER_S, "tokens": 50},
        "environment": {
            "turns": TURNS,
            "step_s": MEDIAN_S / TURNS,
            "rollout_factor": {"median": 1, "p99": math.exp(SIGMA * NormalDist().inv_cdf(0.99))},
        },
        "learner": {"step_s": LEARN_S},
    }
)
ENVIRONMENTS = FleetTimes.model_validate(
    {
        "sampler": {"tokens_per_s": 1e9, "tokens_per_s_of_one": TOKENS_PER_S, "tokens": 50},
        "environment": {"turns": 8, "step_s": {"low": 0.1, "high": 30}},
        "learner": {"step_s": 20},
    }
)
LEAST_SPEEDUP, MOST_IDLE = {1: 1.0, 2: 2.0, 4: 2.4}, 0.10
MOST_OVER, MOST_OF_A_CORE, MOST_GROWTH_MIB = 1.10, 0.10, 4.0


def settings(mode: str, **changes: Any) -> TrainConfig:
    own = {"mode": mode, "staleness": MODES.get(mode, 2), "batching": "eager", "max_failure_rate": 1}
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
    best_s = plans_s(durations, slots, MODES[mode], LEARN_S)
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


# -- streams ---------------------------------------------------------------------------------------------------


def streamed(lag: int, seed: int, steps: int) -> tuple[Report, list[list[float]]]:
    """Return what a stream took, or with lag 0 a synchronous run, and the work of its groups in the order learned."""
    sizes = {"concurrency": 16, "groups_per_step": 8, "group_size": 8, "staleness": lag}
    config = settings("stream", steps=steps, seed=seed, rollout=sizes, filter={"dynamic": "off"})
    plans = Remembered(config)
    with TemporaryDirectory() as folder:
        report = simulate(config, HEAVY_TAILED, Path(folder), Saved(plans))
        lines = [entry for entry in entries(Path(folder) / JOURNAL) if entry.kind == "consumed"]
    asked = {request.id: request for drawn in plans.drawn for request in drawn}
    groups: dict[str, list[float]] = {}
    for request in (asked[one] for entry in lines for one in entry.rollouts):
        groups.setdefault(request.group_id, []).append(work_s(script_of(request, HEAVY_TAILED)))
    return report, list(groups.values())


def streams(seeds: int, steps: int) -> dict[str, dict[str, Any]]:
    sync_s = [streamed(0, seed, steps)[0].total_s for seed in range(seeds)]
    found: dict[str, dict[str, Any]] = {}
    most = steps * 9 // 10
    for lag in LAGS:
        rows = []
        for seed in range(seeds):
            report, groups = streamed(lag, seed, steps)
            told, rule = report.summary(), Rule(batch=8, lag=lag, slots=32, learn_s=LEARN_S)
            rows.append(
                {
                    "speedup_over_batch": sync_s[seed] / report.total_s,
                    "over_clairvoyant": report.total_s / stream_s(groups, rule),
                    "over_bound": report.total_s / stream_bound_s(groups, rule),
                    "sustained_over_bound": sum(report.steps_s[:most])
                    / stream_bound_s(groups[: 8 * most], rule, ends=False),
                    "last_step_share": report.steps_s[-1] / report.total_s,
                    "too_old": told["lag"]["too_old"],
                    "lag": told["lag"]["mean"],
                    **{f"idle_{name}": share for name, share in told["idle"].items()},
                }
            )
        found[str(lag)] = {name: round(median(row[name] for row in rows), 3) for name in rows[0]}
        say(f"stream, lag {lag}: {found[str(lag)]}")
    return found


def idle_environments(steps: int) -> dict[str, float]:
    """Return the idle shares where environments are the bottleneck."""
    sizes = {"concurrency": 64, "groups_per_step": 8, "group_size": 8, "staleness": 4}
    config = settings("stream", steps=steps, rollout=sizes, filter={"dynamic": "off"})
    with TemporaryDirectory() as folder:
        report = simulate(config, ENVIRONMENTS, Path(folder))
    return {name: round(share, 3) for name, share in report.summary()["idle"].items()}


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

    async def fails(self) -> NoReturn:
        await asyncio.Event().wait()
        raise AssertionError("nobody sets it")

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

    return groups * 8 / with_journal(played)


def with_journal(played: Callable[[Journal], Coroutine[Any, Any, float]]) -> float:
    """Return what a coroutine gives in virtual time, with a journal in a folder of its own."""
    with TemporaryDirectory() as folder:
        journal = Journal(Path(folder), done=None)
        journal.begin()
        try:
            return run_virtually(played(journal))
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


def main() -> int:
    options = parser_of(__doc__, quick="fewer seeds, shorter runs").parse_args()
    found = orders(*(2, 10) if options.quick else (20, 20))
    found["stream"] = streams(*(1, 20) if options.quick else (3, 100))
    found["idle_share"]["environments"] = idle_environments(20 if options.quick else 100)
    rate = events_per_core_s(1600 if options.quick else 4000)
    found["events_per_core_s"], found["core_at_100"] = round(rate), round(100 / rate, 4)
    found["memory_growth_mib"] = memory_growth_mib(800 if options.quick else 2000)
    bad = (
        max(found["over_clairvoyant"].values()) > MOST_OVER
        or found["core_at_100"] >= MOST_OF_A_CORE
        or found["memory_growth_mib"] >= MOST_GROWTH_MIB
        or any(own["over_clairvoyant"] > MOST_OVER for own in found["stream"].values())
        or any(
            found["stream"][str(lag)]["speedup_over_batch"] < least for lag, least in LEAST_SPEEDUP.items()
        )
        or found["idle_share"]["environments"]["environments"] >= MOST_IDLE
    )
    return finish(found, bad=bad)


if __name__ == "__main__":
    sys.exit(main())
