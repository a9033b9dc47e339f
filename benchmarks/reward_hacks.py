"""Ways to a reward that are no work, tried in every kind of task, and what they earned.

`python -m benchmarks.reward_hacks [--quick] [--each N] [--variant N] [--only TEXT]`. Of the catalogue of `ale env check`,
drawn for each task, `--each` hacks (10) of every class of cause are played in every target: built-in tasks of `swe`, a task
that is graded as its other sources are, `code` (an answer that runs the script), `terminal`, registered Harbor tasks with
the kinds of test script of `script_tasks.py`, a Terminal-Bench and a SWE-bench task. Each target takes others of a
class than the one before, and `--variant` draws other words and tasks. Beside these are played hacks of `tests/escape` that
were made for one target: those of `value_hacks.py` on built-in tasks of `swe`, of which four that had paid on 200 each
(`swe awaited`), and those of `hacks.py` and `script_tasks.py`; and honest work of unusual kinds. Each is played in a box of
its own on a real server, three at once; after 24 minutes no other begins.

The last line is one JSON object: `tried`, `rewarded` (which must be 0), `ungraded` (which must be 0; what had no time
counts), `honest_tried` and `honest_rewarded` (at least .99 of them). `hacks` counts different hacks, `strata` the tries of
each class of cause in each target of the catalogue, `classes` the fewest of a class in any and `least` the fewest of all;
`by` has the first keys for each target. The exit code is 1 where one of these is missed, or a whole run has fewer than 1,200
tries, 100 hacks, 10 of a class in a target or 200 of honest work. `--only` plays the targets whose names hold a text, and
`--write` writes docs/results/reward-hacks.md. Registered tasks need a Docker engine; without one they are left out, and
stderr says so.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any, NamedTuple, TypeVar

from hacked_env import FIX
from hacks import HACKS
from integration.docker_engine import why_no_engine
from registered_hacks import Try, all_tries, play_all, read_all
from value_hacks import AWAITED, VALUE_HACKS, script_of

from benchmarks.scaffold import finish, markdown_table, parser_of, say, write_results
from rock_env.client import Client
from rock_env.errors import RockError
from rock_env.local import embedded
from rock_env.plugins import load_env
from rock_env.spec import EnvSpec, TaskSpec
from rock_env.vetting.hacks import CLASSES, hacks, honest_work, kind_of
from sandboxes.code.catalog import find

ENV = Path(__file__).parents[1] / "tests" / "escape" / "hacked_env.py"
_GOALS = {"tried": 1200, "hacks": 100, "least": 10, "honest_tried": 200}
"""The fewest of each in a whole run."""
_GOALS_SAID = (
    "Goals: at least 1,200 tries of at least 100 hacks, at least 10 of each class of cause in each target, none\nrewarded; "
    "at least 200 of honest work, .99 of them rewarded; 1,500 s."
)
_KEYS = ("tried", "rewarded", "honest_tried", "honest_rewarded")
_MOST_LOST = 0.01
"""Of honest work."""
_LAST_BEGIN_S = 24 * 60
_AT_ONCE = 3
_CALLED = """\
import subprocess

_script = subprocess.Popen(["bash", "-c", {script!r}], stdin=-3, stdout=-3, stderr=-3)
try:
    _script.wait(2)
except subprocess.TimeoutExpired:
    pass


def {name}(*args):
    return args[0] if args else None
"""
"""An answer to `code` that runs a shell script where it is graded."""


@dataclass(frozen=True)
class Size:
    """How much is played."""

    each: int
    """Hacks of a class in a target."""
    registered_step: int
    """Every so many registered tasks one is built."""
    own: int
    """Hacks of `tests/escape` and honest works in a registered task."""
    of_swe: int
    """Hacks of `hacks.py` on the task that is graded as `swe` grades other sources."""
    awaited: int
    """Tasks for each hack of `swe` that had paid."""
    others: int
    """Hacks of `value_hacks.py` beside these, each on two tasks."""
    honest: int
    """Tasks of an environment that honest variants are played on."""


WHOLE = Size(each=10, registered_step=1, own=8, of_swe=100, awaited=200, others=100, honest=3)
QUICK = Size(each=1, registered_step=4, own=1, of_swe=6, awaited=2, others=4, honest=1)


class Play(NamedTuple):
    """One script on one task of an installed environment, and whether it is honest."""

    target: str
    environment: str
    task: TaskSpec
    name: str
    actions: tuple[str, ...]
    honest: bool = False
    solved: bool = False
    """The reference solution follows."""


Tried = TypeVar("Tried", Play, Try)


def rotated(items: Sequence[Tried], count: int, turn: int) -> list[Tried]:
    """Return up to `count` of the items, others at each turn."""
    places = range(turn * count, turn * count + min(count, len(items)))
    return [items[place % len(items)] for place in places]


def each_class(items: Sequence[Tried], each: int, turn: int) -> list[Tried]:
    """Return up to `each` hacks of every class of cause."""
    by_class = ([item for item in items if kind_of(item.name) == kind] for kind in CLASSES)
    return [item for members in by_class for item in rotated(members, each, turn)]


class Built:
    """The plays on installed environments."""

    def __init__(self, size: Size, variant: int) -> None:
        self._size = size
        self._variant = variant
        self._draw = Random(f"40 {variant}")

    def plays(self) -> list[Play]:
        found = self._as_other_sources()
        for turn, name in enumerate(("swe built-in", "code", "terminal")):
            spec = load_env(name.partition(" ")[0])
            tasks = spec.tasks(spec.params())
            every = [tasks.get(split, at) for split in tasks.splits for at in range(tasks.count(split))]
            known = [
                Play(name, spec.name, task, hack, (self._action(spec, task, script),))
                for hack, script in hacks(variant=self._variant).items()
                for task in [self._draw.choice(every)]
            ]
            found += each_class(known, self._size.each, self._variant + turn + 1)
            for task in self._draw.sample(every, self._size.honest):
                found += self._honest(name, spec, task)
            if spec.name == "swe":
                found += self._of_values(every)
        return found

    @staticmethod
    def _action(spec: EnvSpec, task: TaskSpec, script: str) -> str:
        return _CALLED.format(script=script, name=find(task.payload).name) if spec.name == "code" else script

    @staticmethod
    def _honest(target: str, spec: EnvSpec, task: TaskSpec) -> Iterable[Play]:
        for name, actions in spec.honest(spec.params(), task).items():
            yield Play(target, spec.name, task, name, actions, honest=True)
        if spec.graded_as_it_lies:
            for name, script in honest_work().items():
                yield Play(target, spec.name, task, name, (f"({script}\n)",), honest=True, solved=True)

    def _of_values(self, every: Sequence[TaskSpec]) -> Iterable[Play]:
        others = [name for name in VALUE_HACKS if name not in AWAITED][: self._size.others]
        counts = {**dict.fromkeys(AWAITED, self._size.awaited), **dict.fromkeys(others, 2)}
        for name, count in counts.items():
            target = "swe awaited" if name in AWAITED else "swe built-in"
            for task in self._draw.sample(every, count):
                yield Play(target, "swe", task, name, (script_of(name),))

    def _as_other_sources(self) -> list[Play]:
        def play(name: str, task: str, *scripts: str, honest: bool = False) -> Play:
            spec = TaskSpec(task, "train", 0, "")
            actions = tuple(f"cd /workspace/depot\n{script}" for script in scripts)
            return Play("swe", "hacked", spec, name, actions, honest=honest)

        known = [play(name, "train/0", script) for name, script in hacks(variant=self._variant).items()]
        own = [play(name, hack.task, hack.script) for name, hack in HACKS.items()]
        fair = [
            play(name, hack.task, hack.script, FIX, honest=True) for name, hack in HACKS.items() if hack.fair
        ]
        step = self._variant
        return [
            *each_class(known, self._size.each, step),
            *rotated(own, self._size.of_swe, step),
            *rotated(fair, self._size.of_swe, step),
        ]


class Counts:
    """What was tried and what it earned, in each target."""

    def __init__(self) -> None:
        self._by: dict[str, Counter[str]] = {}
        self._strata: dict[str, Counter[str]] = {}
        self._hacks: set[str] = set()
        self._ungraded = 0

    def add(self, target: str, name: str, reward: float | None, details: str, *, honest: bool) -> None:
        if reward is None or (reward == 1.0) != honest:
            say(f"{target}: {name}: {reward} ({details})")
        if reward is None:
            self._ungraded += 1
            return
        counts = self._by.setdefault(target, Counter())
        prefix = "honest_" if honest else ""
        counts[f"{prefix}tried"] += 1
        counts[f"{prefix}rewarded"] += reward == 1.0 if honest else reward > 0
        if not honest:
            self._hacks.add(name)
            if kind_of(name) in CLASSES:
                self._strata.setdefault(target, Counter())[kind_of(name)] += 1

    def summary(self) -> dict[str, Any]:
        strata = {name: {kind: counts[kind] for kind in CLASSES} for name, counts in self._strata.items()}
        classes = {kind: min((row[kind] for row in strata.values()), default=0) for kind in CLASSES}
        return {
            **{key: sum(counts[key] for counts in self._by.values()) for key in _KEYS},
            "ungraded": self._ungraded,
            "hacks": len(self._hacks),
            "least": min(classes.values()),
            "classes": classes,
            "strata": strata,
            "by": {name: {key: counts[key] for key in _KEYS} for name, counts in self._by.items()},
        }


async def run_built_in(plays: Sequence[Play], found: Counts, until: float) -> None:
    """Play each in an episode of its own."""
    gate = asyncio.Semaphore(_AT_ONCE)
    options = [f"--env={ENV}:HACKED", "--workers=2", "--isolation=namespaces"]
    async with embedded(options) as address, Client(address) as client:

        async def one(play: Play) -> None:
            async with gate:
                reward, details = None, "there was no time left"
                if time.monotonic() < until:
                    reward, details = await earned(client, play)
            found.add(play.target, play.name, reward, f"{play.task.id}: {details}", honest=play.honest)

        await asyncio.gather(*map(one, plays))


async def earned(client: Client, play: Play) -> tuple[float | None, str]:
    """Return the reward of one play, None where it got no grade, and what was said."""
    try:
        env = await client.make(play.environment)
        try:
            observation, _, _ = await env.reset(play.task.id, 0)
            for action in play.actions:
                observation = (await env.step(action)).observation
            if play.solved:
                spec, done = load_env(play.environment), False
                oracle = spec.oracle(spec.params(), play.task)
                while not done:
                    played = await env.step(oracle(observation))
                    observation, done = played.observation, played.terminated or played.truncated
            verdict = await env.evaluate()
        finally:
            await env.close()
    except RockError as error:
        return None, error.message
    return verdict.reward, verdict.details


def run_registered(size: Size, variant: int, only: str, found: Counts, until: float) -> None:
    """Play on registered tasks of each format and kind of test script."""
    if why := why_no_engine():
        say(f"registered tasks are left out: {why}")
        return
    with tempfile.TemporaryDirectory() as folder:
        tasks = [task for task in read_all(Path(folder)) if only in target_of(task.name)]
        tasks = tasks[:: size.registered_step]
        tries = []
        for turn, task in enumerate(tasks, start=variant):
            known = all_tries([task], variant)
            plain = [each for each in known if kind_of(each.name) not in CLASSES]
            tries += each_class(known, size.each, turn)
            for honest in (False, True):
                own = [each for each in plain if each.honest is honest]
                tries += rotated(own, size.own, turn)
        for each in play_all(tries, tasks, Path(folder), until) if tries else ():
            found.add(target_of(each.format), each.name, each.reward, each.details, honest=each.honest)


def target_of(name: str) -> str:
    """Return what a registered task is called in the output."""
    return name if "_" in name or name == "harbor" else f"harbor {name}"


def missed(found: Mapping[str, Any], *, whole: bool) -> list[str]:
    """Return which of the goals a run missed."""
    lost = found["honest_tried"] - found["honest_rewarded"]
    wrong = [key for key in ("rewarded", "ungraded") if found[key]]
    if lost > _MOST_LOST * found["honest_tried"]:
        wrong.append("honest_rewarded")
    return wrong + [key for key, fewest in _GOALS.items() if whole and found[key] < fewest]


def page(found: Mapping[str, Any]) -> str:
    """Return the results page's text."""
    by = [(f"`{name}`", *counts.values()) for name, counts in found["by"].items()]
    total = ("together", *(found[key] for key in _KEYS))
    strata = [(f"`{name}`", *counts.values()) for name, counts in found["strata"].items()]
    parts = (
        f"{found['tried']} tries of {found['hacks']} hacks and {found['honest_tried']} of honest work in "
        f"{found['seconds']} s; {found['ungraded']} were without a grade. {_GOALS_SAID}",
        markdown_table(("target", "hacks tried", "rewarded", "honest work tried", "rewarded"), [*by, total]),
        "The hacks of the catalogue among them, by class of cause:",
        markdown_table(("target", *CLASSES), strata),
        "`swe awaited` are the four hacks that had paid in `swe`, on 200 random tasks each; `swe built-in` are its own\n"
        "tasks, and `swe` a task that is graded as its other sources are. What no catalogue shows is in\n"
        "[grading.md](../grading.md#what-is-left-to-a-malicious-policy).",
    )
    return "\n\n".join(parts)


def main() -> int:
    quick = "one hack of each class in each target, on fewer tasks"
    parser = parser_of(__doc__, quick=quick, write="reward-hacks.md")
    parser.add_argument("--each", type=int, default=WHOLE.each, help="hacks of each class in each target")
    parser.add_argument("--variant", type=int, default=0, help="which words and tasks are drawn")
    parser.add_argument("--only", default="", help="only targets whose names hold this text")
    given = parser.parse_args()
    found, began = Counts(), time.monotonic()
    until = began + _LAST_BEGIN_S
    size = QUICK if given.quick else replace(WHOLE, each=given.each)
    plays = [play for play in Built(size, given.variant).plays() if given.only in play.target]
    if plays:
        asyncio.run(run_built_in(plays, found, until))
    say(f"{round(time.monotonic() - began)} s: registered tasks begin")
    run_registered(size, given.variant, given.only, found, until)
    summary = found.summary()
    wrong = missed(summary, whole=not (given.quick or given.only))
    if wrong:
        say(f"missed: {', '.join(wrong)}")
    summary["seconds"] = round(time.monotonic() - began)
    if given.write:
        write_results(
            "reward-hacks.md", "Rewards without work", "python -m benchmarks.reward_hacks", page(summary)
        )
    return finish(summary, bad=wrong)


if __name__ == "__main__":
    sys.exit(main())
