"""How long a grade takes in every kind of task, beside the code of another commit.

`python -m benchmarks.grading_times [--quick] [--base COMMIT] [--only FAMILY]`. In each round a reference solution is played
and graded in every target: built-in tasks of `swe`, `code` and `terminal`, registered Harbor tasks with each kind of test
script, a Terminal-Bench and a SWE-bench task. Only the call that grades is timed. With `--base` (a commit whose tests have
the same layout) a second server runs that commit's `rock_env` and `sandboxes`; each play alternates between the two.

The last line is one JSON object. `targets` has for each target the median `seconds` and, with a base, `base_seconds` and
`ratio`, the median of the ratios of each round. `families` has the medians of a family's targets together, over those of
the base. The exit code is 1 where one of these is above 1.3. Needs a Docker engine.
"""

from __future__ import annotations

import asyncio
import io
import json
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

from hacked_tasks import read_hacked
from integration.docker_engine import why_no_engine
from integration.foreign_tasks import Foreign, serving
from script_tasks import read_scripted, why_no_make

from benchmarks.scaffold import Child, finish, parser_of, say
from rock_env.client import Client
from rock_env.local import embedded
from rock_env.plugins import load_env

_MOST = 1.3
_BUILT_IN = ("swe", "code", "terminal")
_PARTS = ("rock_env", "sandboxes")
"""What a base's server runs of its own."""


class Side(Child):
    """A process with servers of one commit, which plays and grades on demand."""

    def __init__(self, base: Path | None, folder: Path) -> None:
        words = ["-P", "-m", "benchmarks.grading_times", "--serve", str(folder)]
        super().__init__(*words, variables={"PYTHONPATH": str(base)} if base else None)
        self.targets: list[str] = self.first

    def seconds(self, target: str, turn: int) -> float:
        """Play one task and return how long its grade took."""
        return float(self.ask(f"{turn} {target}"))


async def serve(folder: Path) -> None:
    """Grade what standard input asks for, a turn and a target in each line, and say the seconds."""
    tasks = [*read_hacked(folder / "formats"), *([] if why_no_make() else read_scripted(folder / "scripted"))]
    options = ["--workers=1", "--isolation=namespaces"]
    async with (
        embedded(options) as address,
        Client(address) as client,
        serving(tasks, folder) as foreign,
    ):
        print(json.dumps([*_BUILT_IN, *foreign.tasks]), flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            turn, target = line.split()
            found = await (built_in if target in _BUILT_IN else registered)(
                client, foreign, target, int(turn)
            )
            print(found, flush=True)


async def built_in(client: Client, foreign: Foreign, name: str, turn: int) -> float:
    """Return how long the grade of one of a built-in environment's tasks took."""
    spec = load_env(name)
    task = spec.tasks(spec.params()).get("train", turn * 7)
    choose, done = spec.oracle(spec.params(), task), False
    env = await client.make(name)
    try:
        observation, _, _ = await env.reset(task.id, 0)
        while not done:
            played = await env.step(choose(observation))
            observation, done = played.observation, played.terminated or played.truncated
        began = time.perf_counter()
        verdict = await env.evaluate()
        took = time.perf_counter() - began
    finally:
        await env.close()
    assert verdict.passed, (name, task.id, verdict)
    return took


async def registered(client: Client, foreign: Foreign, name: str, turn: int) -> float:
    """Return how long the grade of a registered task took."""
    played = await foreign.solve(name)
    assert played.verdict.passed, (name, played.verdict)
    return played.graded_s


def unpacked(commit: str, folder: Path) -> Path:
    """Write what a server runs of a commit below `folder` and return it."""
    done = subprocess.run(["git", "archive", commit, *_PARTS], capture_output=True, check=True)
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder


def measured(sides: Sequence[Side], rounds: int, only: str) -> dict[str, list[list[float]]]:
    """Return the seconds of each target of a family, or of all: of each round those of each side."""
    targets = [target for target in sides[0].targets if only in ("", family_of(target))]
    found: dict[str, list[list[float]]] = {target: [] for target in targets}
    for turn in range(rounds + 1):
        for target, rows in found.items():
            order = sides if turn % 2 else sides[::-1]
            took = {id(side): side.seconds(target, turn) for side in order}
            if turn:  # the first round warms up
                rows.append([took[id(side)] for side in sides])
        say(f"round {turn} of {rounds}")
    return found


def family_of(target: str) -> str:
    """Return the kind of tasks that a target is one of."""
    return target if target in _BUILT_IN or "_" in target else "harbor"


def summary(found: Mapping[str, Sequence[Sequence[float]]]) -> dict[str, dict[str, Any]]:
    """Return the medians, and where there is a base the ratios."""
    targets: dict[str, Any] = {}
    sums: dict[str, list[list[float]]] = {}
    for target, rows in found.items():
        medians = [median(column) for column in zip(*rows, strict=True)]
        sums.setdefault(family_of(target), []).append(medians)
        names = ("seconds", "base_seconds")
        targets[target] = {name: round(value, 3) for name, value in zip(names, medians, strict=False)}
        if len(medians) > 1:
            targets[target]["ratio"] = round(median(new / old for new, old in rows), 2)
    families = {
        name: round(sum(row[0] for row in rows) / sum(row[-1] for row in rows), 2)
        for name, rows in sums.items()
        if len(rows[0]) > 1
    }
    return {"targets": targets, "families": families}


def main() -> int:
    parser = parser_of(__doc__, quick="four rounds instead of ten")
    parser.add_argument("--base", default="", help="compare with this commit")
    parser.add_argument("--only", default="", help="only this family")
    parser.add_argument("--serve", type=Path, help="the part that a run starts itself")
    given = parser.parse_args()
    if given.serve:
        asyncio.run(serve(given.serve))
        return 0
    if why := why_no_engine():
        say(why)
        return 1
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        bases = [None, *([unpacked(given.base, folder / "base")] if given.base else [])]
        sides = []
        for number, base in enumerate(bases):
            (folder / str(number)).mkdir()
            sides.append(stack.enter_context(Side(base, folder / str(number))))
        found = summary(measured(sides, 4 if given.quick else 10, given.only))
    return finish(found, bad=any(ratio > _MOST for ratio in found["families"].values()))


if __name__ == "__main__":
    sys.exit(main())
