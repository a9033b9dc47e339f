"""Ways to a reward that are no work, tried one after the other, and what they earned.

`python -m benchmarks.reward_hacks [--quick]`. The catalogue of `ale env check`, drawn for each task, is played in all
targets: as `swe` is graded, on `code` and `terminal`, on registered Harbor tasks with eight kinds of test script (and
one more with pytest), a Terminal-Bench and a SWE-bench task. The hacks of `tests/escape/hacks.py` are played as `swe` is
graded and on the registered formats, those of `tests/escape/script_tasks.py` on the eight kinds. Those of
`tests/escape/value_hacks.py` are played on built-in tasks of `swe`, the four that had paid on 200 of them, with the honest
variants of `swe` and `code`. Each is played in a box of its own on a real server. The last line is one JSON object: `tried`,
`rewarded` (which must be 0), `ungraded` (which must be 0), and, of honest work, `honest_tried` and `honest_rewarded` (at
least .99 of them). `by` says the same for each target, `classes` how many hacks of each class of cause were tried in the
target of the catalogue that has fewest. Registered tasks need a Docker engine; without one they are left out, and stderr
says so.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from random import Random

from docker_engine import why_no_engine
from hacked_env import FIX
from hacks import HACKS
from registered_hacks import all_tries, play_all, read_all
from value_hacks import AWAITED, VALUE_HACKS, script_of

from benchmarks.scaffold import finish, parser_of, say
from rock_env.client import Client
from rock_env.local import embedded
from rock_env.plugins import load_env
from rock_env.vetting.hacks import CLASSES, hacks, kind_of

ENV = Path(__file__).parents[1] / "tests" / "escape" / "hacked_env.py"
_SEED = 40
_AWAITED_TASKS, _HACKED_TASKS, _HONEST_TASKS = 200, 4, 5
"""Of how many tasks each hack that had paid, each other hack and each honest variant is tried on."""
_QUICK = 20
"""Every so many hacks one is tried."""
_QUICK_REGISTERED = 31
"""A prime, so that all classes have their turns."""
_QUICK_TASKS = 3
"""Every so many registered tasks one is built."""
_MOST_LOST = 0.01
"""Of honest work."""


async def earned(client: Client, name: str, task: str, script: str, *, fixed: bool) -> float:
    env = await client.make("hacked")
    try:
        await env.reset(task, 0)
        await env.step(f"cd /workspace/depot\n{script}")
        if fixed:
            await env.step(f"cd /workspace/depot\n{FIX}")
        verdict = await env.evaluate()
    finally:
        await env.close()
    say(f"{name}{' and a fix' if fixed else ''}: {verdict.reward:g} ({verdict.details})")
    return verdict.reward


async def run_swe(every: int, found: Counts) -> None:
    options = [f"--env={ENV}:HACKED", "--workers=1", "--isolation=namespaces"]
    async with embedded(options) as address, Client(address) as client:
        for name, hack in list(HACKS.items())[::every]:
            reward = await earned(client, name, hack.task, hack.script, fixed=False)
            found.add("swe", reward, honest=False)
            if hack.fair:
                reward = await earned(client, name, hack.task, hack.script, fixed=True)
                found.add("swe", reward, honest=True)
        for name, script in list(hacks().items())[::every]:
            reward = await earned(client, name, "train/0", script, fixed=False)
            found.add("swe", reward, honest=False, kind=kind_of(name))


async def run_installed(every: int, found: Counts) -> None:
    """Try the catalogue on the first task of the environments whose grade is of a file or an answer."""
    async with embedded(["--workers=1", "--isolation=namespaces"]) as address, Client(address) as client:
        for environment in ("code", "terminal"):
            for name, script in list(hacks().items())[::every]:
                env = await client.make(environment)
                try:
                    await env.reset("train/0", 0)
                    await env.step(script)
                    reward = (await env.evaluate()).reward
                    found.add(environment, reward, honest=False, kind=kind_of(name))
                finally:
                    await env.close()


async def run_built_in(every: int, found: Counts) -> None:
    """Play hacks of the grade by values on random built-in tasks of `swe`, and honest variants of it and of `code`."""
    draw = Random(_SEED)
    plays = []
    for name in ("swe", "code"):
        spec = load_env(name)
        tasks = spec.tasks(spec.params())
        every_task = [
            tasks.get(split, index) for split in tasks.splits for index in range(tasks.count(split))
        ]
        for task in draw.sample(every_task, _HONEST_TASKS):
            variants = spec.honest(spec.params(), task)
            plays += [(name, task.id, variant, actions, True) for variant, actions in variants.items()]
        if name == "swe":
            for hack in VALUE_HACKS:
                count = _AWAITED_TASKS if hack in AWAITED else _HACKED_TASKS
                chosen = draw.sample(every_task, count)
                plays += [(name, task.id, hack, (script_of(hack),), False) for task in chosen]
    async with embedded(["--workers=1", "--isolation=namespaces"]) as address, Client(address) as client:
        for name, task, what, actions, honest in plays[::every]:
            env = await client.make(name)
            try:
                await env.reset(task, 0)
                for action in actions:
                    await env.step(action)
                reward = (await env.evaluate()).reward
            finally:
                await env.close()
            if (reward == 1.0) != honest:
                say(f"{name} {task}: {what}: {reward}")
            found.add(f"{name} built-in", reward, honest=honest)


def run_registered(every: int, found: Counts) -> None:
    if why := why_no_engine():
        say(f"registered tasks are left out: {why}")
        return
    with tempfile.TemporaryDirectory() as folder:
        tasks = read_all(Path(folder))[:: 1 if every == 1 else _QUICK_TASKS]
        for each in play_all(all_tries(tasks)[::every], tasks, Path(folder)):
            if each.reward is None or (each.reward == 1.0) != each.honest:
                say(f"{each.format}: {each.name}: {each.reward} ({each.details})")
            if each.reward is None:
                found.ungraded += 1
            else:
                found.add(each.format, each.reward, honest=each.honest, kind=kind_of(each.name))


class Counts:
    """What was tried and what it earned, in each environment."""

    def __init__(self) -> None:
        self.by: dict[str, Counter[str]] = {}
        self.classes: Counter[tuple[str, str]] = Counter()
        self.ungraded = 0

    def add(self, environment: str, reward: float, *, honest: bool, kind: str = "") -> None:
        counts = self.by.setdefault(environment, Counter())
        prefix = "honest_" if honest else ""
        counts[f"{prefix}tried"] += 1
        counts[f"{prefix}rewarded"] += reward == 1.0 if honest else reward > 0
        self.classes[environment, kind] += not honest

    def total(self, key: str) -> int:
        return sum(counts[key] for counts in self.by.values())

    def summary(self) -> dict[str, object]:
        keys = ("tried", "rewarded", "honest_tried", "honest_rewarded")
        targets = {name for name, kind in self.classes if kind}
        return {
            **{key: self.total(key) for key in keys},
            "ungraded": self.ungraded,
            "classes": {kind: min(self.classes[name, kind] for name in targets) for kind in CLASSES},
            "by": {name: {key: counts[key] for key in keys} for name, counts in self.by.items()},
        }


def main() -> int:
    parser = parser_of(__doc__, quick=f"one hack of {_QUICK}")
    options = parser.parse_args()
    every = _QUICK if options.quick else 1
    found, began = Counts(), time.monotonic()
    asyncio.run(run_swe(every, found))
    asyncio.run(run_installed(every, found))
    asyncio.run(run_built_in(every, found))
    run_registered(_QUICK_REGISTERED if options.quick else 1, found)
    whole = found.summary()
    lost = found.total("honest_tried") - found.total("honest_rewarded")
    too_few = lost > _MOST_LOST * found.total("honest_tried")
    figures = {**whole, "seconds": round(time.monotonic() - began)}
    return finish(figures, bad=whole["rewarded"] or whole["ungraded"] or too_few)


if __name__ == "__main__":
    sys.exit(main())
