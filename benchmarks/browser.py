"""What an episode in a browser costs: `python -m benchmarks.browser [--quick] [--part PART [--first N] [--count M]]`.

Plays the reference policy on one task of each site in turn, one episode at a time, each in a box of its own with a browser
of its own, out of a warm pool. The pool is filled between episodes, never during one. The last line is one JSON object:

- `context_p50_ms`: from asking the pool for a box to the first observation, median;
- `cold_p50_ms`: the same where nothing is kept ready, of each round's first episode, median;
- `step_p50_ms`: one action on a local page, with the observation after it, median over all actions that reach the browser;
- `mb_per_episode`: memory of the box's processes within an episode, shared pages divided among their users, median;
- `leaked_processes`: processes of browsers and drivers that are there after the last box was closed and were not before.

A part measures something else instead, over tasks of the sites from number `--first` on, and has `leaked_processes`, too:

- `side_by_side`: `--count` episodes at the same time (default 8);
- `many`: `--count` episodes one after the other (200);
- `jitter`: `--count` episodes with and without processes that stand still for 0 to 300 ms: how many differ in what was
  observed (200);
- `random`: a policy of chance plays `--count` variants of each kind (10): the highest share of passes (goal: at most 0.1);
- `webshop`: `--count` lists of decisions of the text mode, clicked (500): `mismatches`, lists whose reward is not the text
  mode's (goal: 0), `purchases`, how many different `rewards` there were, `clicks` that reached the browser.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from statistics import median
from time import perf_counter

from browser import parts, webshop_clicks

from benchmarks.scaffold import finish, parser_of
from rock_env.backends.pool import PooledBackend
from rock_env.backends.process.backend import ProcessBackend
from rock_env.sandbox import Sandbox
from sandboxes.browser import ENV
from sandboxes.browser.env import BrowserEnv

QUICK_S, FULL_S = 25.0, 240.0
PARTS = {
    "side_by_side": (parts.side_by_side, 8),
    "many": (parts.many, 200),
    "jitter": (parts.jitter, 200),
    "random": (parts.random_rates, 10),
    "webshop": (webshop_clicks.compare, 500),
}
"""What measures each part, and its usual count."""
TASKS = 7
STOCK = 2
"""Boxes kept ready; more would take the processor from the one that plays."""
OURS = (b"chromium", b"sandboxes.browser.box", b"playwright")
MEMORY = """
import pathlib
total = 0
for each in pathlib.Path('/proc').glob('[0-9]*'):
    try:
        lines = (each / 'smaps_rollup').read_text().splitlines()
    except OSError:
        continue
    total += sum(int(line.split()[1]) for line in lines if line.startswith('Pss:'))
print(total)
"""


class Figures:
    """What was measured, as it comes."""

    def __init__(self) -> None:
        self.contexts: list[float] = []
        self.cold: list[float] = []
        self.steps: list[float] = []
        self.megabytes: list[float] = []
        self.failed = 0


def ours() -> set[int]:
    """Return the processes of this machine that are a browser, its driver or its server."""
    found = set()
    for each in Path("/proc").glob("[0-9]*"):
        try:
            line = (each / "cmdline").read_bytes()
        except OSError:
            continue
        if any(word in line for word in OURS):
            found.add(int(each.name))
    return found


async def memory(box: Sandbox) -> float:
    """Return the megabytes that the box's processes take."""
    told = await box.exec(["python3", "-c", MEMORY])
    return int(told.stdout) / 1024


async def episode(pool: PooledBackend, index: int, figures: Figures) -> None:
    """Play one task by its reference policy. Where there is no stock the box starts cold."""
    assert ENV.sandbox is not None
    params = ENV.params()
    task = ENV.tasks(params).get("held_out", index % TASKS)
    env, oracle = ENV.factory(params), ENV.oracle(params, task)
    assert isinstance(env, BrowserEnv)
    warm = len(pool.stock)
    pool.set_target(ENV.sandbox, max(0, warm - 1))
    began = perf_counter()
    box = await pool.create(ENV.sandbox, sandbox_id=f"bench-{index}")
    try:
        observation, _ = await env.reset(box, task, 0)
        (figures.contexts if warm else figures.cold).append(perf_counter() - began)
        for turn in range(40):
            action = oracle(observation)
            if turn == 2:
                figures.megabytes.append(await memory(box))
            began = perf_counter()
            result = await env.step(box, action)
            if result.terminated:
                break
            figures.steps.append(perf_counter() - began)
            observation = result.observation
        figures.failed += not (await env.evaluate(box)).passed
    finally:
        await box.close()


async def measure(seconds: float) -> dict[str, float]:
    """Play episodes for so long, one of each site at least where the time allows."""
    assert ENV.sandbox is not None
    before, figures = ours(), Figures()
    pool = PooledBackend(ProcessBackend(python_packages=("playwright",)))
    try:
        began, played = perf_counter(), 0
        while perf_counter() - began < seconds:
            await episode(pool, played, figures)
            pool.set_target(ENV.sandbox, STOCK)
            while len(pool.stock) < STOCK:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            for number in range(1, STOCK + 1):
                await episode(pool, played + number, figures)
            played += STOCK + 1
    finally:
        await pool.close()
    return {
        "context_p50_ms": round(median(figures.contexts) * 1000, 1),
        "cold_p50_ms": round(median(figures.cold) * 1000, 1),
        "step_p50_ms": round(median(figures.steps) * 1000, 1),
        "mb_per_episode": round(median(figures.megabytes), 1),
        "leaked_processes": len(ours() - before),
        "episodes": played,
        "unsolved": figures.failed,
    }


async def measure_part(part: str, first: int, count: int | None) -> dict[str, float]:
    """Measure one of the parts in boxes that start cold."""
    before = ours()
    backend = ProcessBackend(python_packages=("playwright",))
    act, usual = PARTS[part]
    try:
        figures = await act(backend, first, count or usual)
    finally:
        await backend.close()
    return {**figures, "leaked_processes": len(ours() - before)}


def main() -> int:
    """Measure and print the figures."""
    parser = parser_of(__doc__, quick=f"play for {QUICK_S:g} s instead of {FULL_S:g} s")
    parser.add_argument("--part", choices=PARTS, help="measure this instead")
    parser.add_argument("--first", type=int, default=0, help="number of a part's first task")
    parser.add_argument("--count", type=int, help="how many episodes, or variants")
    asked = parser.parse_args()
    if asked.part:
        figures = asyncio.run(measure_part(asked.part, asked.first, asked.count))
    else:
        figures = asyncio.run(measure(QUICK_S if asked.quick else FULL_S))
    wrong = ("leaked_processes", "unsolved", "different", "mismatches")
    bad = any(figures.get(name) for name in wrong) or figures.get("highest_random_rate", 0) > 0.1
    return finish(figures, bad=bad)


if __name__ == "__main__":
    sys.exit(main())
