"""What a rollout costs the run's own process, a run on 64 GPUs in virtual time, and what both say of larger ones.

`python -m benchmarks.scale [--quick]`; docs/scale.md says what follows. The run's own process schedules, decodes and keeps
records, and calls workers through Ray: one process, whose threads share Python's lock. A rollout here has 20 turns of 300
tokens that are observed and 149 that are sampled. The last line is one JSON object:

- `scheduler_us`: processor time of scheduling a rollout, with the smallest record: `sync`, and `stream` by groups in a step;
- `record`: `kb` of a record; `decode_us`; `write_us`, to the disk; `memory_kb`, of a record and what it is decoded to;
- `ray_us`: processor time, in the process that calls, of a call of an actor that answers with such a record; a rollout where
  a call brings eight of them; and of a call that answers with nothing;
- `rollout_us`: scheduling in the largest stream, `decode_us`, `write_us` and a call. `rates_ms`: a copy of 4,096 pass rates,
  once a step;
- `gpus_64`: 32 samplers, 32 GPUs that learn, `stream` with lag 2, 256 groups of 8 in a step: step, idle shares, rollouts a
  second, seconds of one, and the share of a core that `rollout_us` makes of it. A sampler is as fast as docs/results/gpu.md
  says; the learner as docs/results/gpu-learner.md does, if 32 GPUs are 32 times as fast as one;
- `extrapolated`, which nobody ran: 1,000 GPUs with 100,000 rollouts in flight that take as long as those.
"""

from __future__ import annotations

import asyncio
import copy
import sys
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from time import process_time
from typing import Any

import numpy as np
import ray

from agent_runtime.store import decode, encode
from agent_runtime.types import RolloutRequest
from benchmarks.scaffold import finish, parser_of, say
from benchmarks.scheduler import Timers, events_per_core_s, settings, with_journal
from trainer.records import PLAYED, Records
from trainer.scheduler.journal import Journal
from trainer.scheduler.streaming import scheduler_of
from trainer.simulator.fleet import FleetTimes
from trainer.simulator.parts import Plans, SimulatedCalls, record_of, script_of
from trainer.simulator.run import simulate

TURNS, OBSERVED, SAMPLED = 20, 300, 149
"""149 is the mean of the tokens of a turn below."""
GPUS_64 = FleetTimes.model_validate(
    {
        "sampler": {"tokens_per_s": 8865, "tokens_per_s_of_one": 214, "load_s": 0.6},
        "environment": {"turns": TURNS, "step_s": {"median": 1, "p99": 30}},
        "learner": {"step_s": 28, "other_s": 2},
    }
)
ENVIRONMENTS = 100_000


def stream_us(groups: int, steps: int = 3) -> float:
    """Return the microseconds of scheduling a rollout of a stream, with so many groups of 8 in a step and a lag of 3."""
    sizes = {"workers": 20, "concurrency": 512, "groups_per_step": groups, "group_size": 8, "staleness": 3}
    config = settings("stream", steps=steps, rollout=sizes, filter={"dynamic": "off"})

    class Fixed(Plans):
        def observe(self, plan: object, rollouts: object) -> str:
            return ""

    calls = Timers(
        [512] * 20, [one for step in range(steps) for one in Fixed(config).plan(step + 1).requests]
    )

    async def played(journal: Journal) -> float:
        clock = asyncio.get_running_loop().time
        stream = scheduler_of(config, calls, Fixed(config), journal, done=0, begun=None, clock=clock)
        running, began = asyncio.create_task(stream.run()), process_time()
        for step in range(1, steps + 1):
            await stream.learned(step - 1)
            stream.consumed(await stream.batch(step))
        spent_s = process_time() - began
        await running
        return spent_s

    return with_journal(played) * 1e6 / (steps * groups * 8)


def a_record() -> bytes:
    """Return the record of a rollout as large as those of software tasks."""
    request = Plans(settings("sync")).plan(1).requests[0]
    smallest = record_of(request, script_of(request, FleetTimes()), 1, {0: 0})
    ids = np.arange(OBSERVED + SAMPLED, dtype=np.int32)
    turns = tuple(
        replace(
            smallest.turns[0],
            index=number,
            parent=number - 1 if number else None,
            context_ids=ids[:OBSERVED],
            completion_ids=ids[OBSERVED:],
            logprobs=np.zeros(SAMPLED, np.float32),
        )
        for number in range(TURNS)
    )
    texts: dict[str, Any] = {
        "actions": ("a" * 4 * SAMPLED,) * TURNS,
        "observations": ("o" * 4 * OBSERVED,) * TURNS,
        "observation_hashes": (b"h" * 32,) * TURNS,
        "turn_rewards": (0.0,) * TURNS,
    }
    return encode(replace(smallest, turns=turns, **texts))


def us_of(act: Callable[[], object], count: int) -> float:
    """Return the processor time of a call, in microseconds."""
    began = process_time()
    for _ in range(count):
        act()
    return (process_time() - began) * 1e6 / count


def record_costs(record: bytes, count: int) -> dict[str, float]:
    """Return what a record takes."""
    tracemalloc.start()
    kept = [(bytes(bytearray(record)), decode(record)) for _ in range(64)]
    memory = tracemalloc.get_traced_memory()[0] / len(kept)
    tracemalloc.stop()
    with TemporaryDirectory() as folder:
        records = Records(Path(folder))
        write_us = us_of(lambda: records.write(PLAYED, 1, [record] * 64), max(1, count // 64)) / 64
    return {
        "kb": round(len(record) / 1000, 1),
        "decode_us": round(us_of(lambda: decode(record), count)),
        "write_us": round(write_us),
        "memory_kb": round(memory / 1000, 1),
    }


def ray_us(record: bytes, count: int) -> dict[str, int]:
    """Return the processor time of calls through Ray in the process that calls, 64 under way, for each rollout."""

    class Worker:
        async def play(self, records: int) -> list[list[bytes]]:
            return [[record]] * records

    async def several(records: int) -> None:
        for _ in range(count // 64):
            await asyncio.gather(*(worker.play.remote(records) for _ in range(64)))

    ray.init(address="local", num_cpus=1, include_dashboard=False, log_to_driver=False)
    try:
        worker: Any = ray.remote(Worker).remote()
        asyncio.run(several(1))  # the first calls start it
        found = {}
        for name, records in (("one", 1), ("by eight", 8), ("empty", 0)):
            spent_us = us_of(partial(asyncio.run, several(records)), 1)
            found[name] = round(spent_us / (count // 64 * 64) / max(1, records))
    finally:
        ray.shutdown()
    return found


class Timed(SimulatedCalls):
    """Calls that note how long rollouts take."""

    taken_s: list[float]

    async def play_at(
        self, worker: int, requests: Sequence[RolloutRequest], policy_step: int
    ) -> list[list[bytes]]:
        """Play them."""
        now = asyncio.get_running_loop().time
        begun = now()
        played = await super().play_at(worker, requests, policy_step)
        self.taken_s.append(now() - begun)
        return played


def on_64_gpus(steps: int, rollout_us: float) -> dict[str, Any]:
    """Return what a run on 64 GPUs takes in virtual time, after its first steps and before its last ones."""
    sizes = {"engines": 32, "workers": 32, "concurrency": 192, "groups_per_step": 256, "group_size": 8}
    config = settings("stream", steps=steps, rollout=sizes, filter={"dynamic": "off"})
    Timed.taken_s = []
    with TemporaryDirectory() as folder:
        report = simulate(config, GPUS_64, Path(folder), made=Timed)
    step_s, told = mean(report.steps_s[steps // 3 : -steps // 4]), report.summary()
    a_second = 256 * 8 / step_s
    return {
        "step_s": round(step_s, 1),
        **{f"idle {name}": round(share, 2) for name, share in told["idle"].items()},
        "mean_lag": round(told["lag"]["mean"], 2),
        "rollouts_per_s": round(a_second, 1),
        "rollout_s": round(mean(Timed.taken_s), 1),
        "share_of_a_core": round(a_second * rollout_us / 1e6, 3),
    }


def extrapolated(found: dict[str, Any]) -> dict[str, float]:
    """Return the same by arithmetic for 100,000 rollouts in flight, on 1,000 GPUs."""
    record, a_second = found["record"], ENVIRONMENTS / found["gpus_64"]["rollout_s"]
    beside = max(found["scheduler_us"].values()) + found["ray_us"]["empty"] / 8
    return {
        "rollouts_per_s": round(a_second),
        "turns_per_s": round(a_second * TURNS),
        "cores": round(a_second * found["rollout_us"] / 1e6, 2),
        "records_mb_per_s": round(a_second * record["kb"] / 1000),
        "batch_gb": round(ENVIRONMENTS / 3 * record["kb"] / 1e6, 1),
        "memory_gb": round(ENVIRONMENTS / 3 * record["memory_kb"] / 1e6, 1),
        "most_rollouts_per_s": round(1e6 / found["rollout_us"]),
        "most_with_records_elsewhere": round(1e6 / beside),
    }


def main() -> int:
    quick = parser_of(__doc__, quick="fewer rollouts").parse_args().quick
    found: dict[str, Any] = {
        "scheduler_us": {"sync": round(1e6 / events_per_core_s(1000 if quick else 4000))}
    }
    for groups in (16, 128) if quick else (16, 128, 1024):
        found["scheduler_us"][f"stream {groups}"] = round(stream_us(groups))
        say(f"{found}")
    record, count = a_record(), 256 if quick else 2048
    found["record"], found["ray_us"] = record_costs(record, count), ray_us(record, count)
    rates = {f"train/{number}": [1.0, 2.0] for number in range(4096)}
    found["rates_ms"] = round(us_of(lambda: copy.deepcopy(rates), 5) / 1000, 1)
    most, costs = max(found["scheduler_us"].values()), found["record"]
    found["rollout_us"] = most + costs["decode_us"] + costs["write_us"] + found["ray_us"]["one"]
    say(f"{found}")
    found["gpus_64"] = on_64_gpus(6 if quick else 16, found["rollout_us"])
    found["extrapolated"] = extrapolated(found)
    return finish(found)


if __name__ == "__main__":
    sys.exit(main())
