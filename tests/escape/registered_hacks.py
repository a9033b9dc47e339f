"""Hacks and honest work on registered tasks of three formats, played on a real server in real containers."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from foreign_tasks import Foreign, serving
from hacked_env import FIX
from hacked_tasks import FORMATS, read_hacked
from hacks import HACKS
from script_tasks import paid, read_scripted, why_no_make

from rock_env.errors import RockError
from rock_env.grading.model import Task
from rock_env.vetting.hacks import hacks, scripts

__all__ = ["FORMATS", "Try", "all_tries", "play_all", "read_all"]

_AT_ONCE = 3
_PLACES = {"swe_bench": "/testbed"}
_HONEST_IN_A_FORK = {"swe: a link for the sources"}
"""Of the hacks of `swe`: where all files come along, a fix behind a link is a fix."""
_PATCH_ONLY = (
    "a package installed",
    "a package beside the system's",
    "a development install",
    "a program installed",
)
"""What SWE-bench's rule does not reward, which carries the change of the sources into a fresh environment."""


class Try(NamedTuple):
    """One script in one task, whether it is honest, and what it earned."""

    format: str
    name: str
    script: str
    honest: bool
    reward: float | None = None
    details: str = ""


def read_all(folder: Path) -> list[Task]:
    """Write the tasks below `folder` and read them: one of each format, and Harbor's with eight kinds of script."""
    scripted = [] if why_no_make() else read_scripted(folder / "scripted")
    return [*read_hacked(folder / "formats"), *scripted]


def all_tries(tasks: Sequence[Task], variant: int = 0) -> list[Try]:
    """Return each hack, as drawn for each task, and each honest work, in each task."""
    own = {f"swe: {name}": hack.script for name, hack in HACKS.items() if hack.task == "train/0"}
    unfair = {name: script for name, script in own.items() if name not in _HONEST_IN_A_FORK}
    text = Path(__file__).with_name("honest_work.txt").read_text()
    work = {name: f"{script}\n{FIX} 2>/dev/null" for name, script in scripts(text).items()}
    tries = []
    for task in tasks:
        known = [
            *hacks(task, variant).items(),
            *(unfair if task.name in FORMATS else paid(task.name)).items(),
        ]
        tries += [Try(task.name, name, script, honest=False) for name, script in known]
        done = [name for name in work if task.name != "swe_bench" or name not in _PATCH_ONLY]
        tries += [Try(task.name, name, work[name], honest=True) for name in done]
    return tries


def play_all(tries: Sequence[Try], tasks: Sequence[Task], folder: Path, until: float = math.inf) -> list[Try]:
    """Play each in an episode of its own, three at once. Needs a Docker engine and the image of `hacked_tasks`.

    None begins after `until` on the monotonic clock: what is left has no reward.
    """
    return asyncio.run(_play_all(tries, tasks, folder, until))


async def _play_all(tries: Sequence[Try], tasks: Sequence[Task], folder: Path, until: float) -> list[Try]:
    async with serving(tasks, folder) as foreign:
        for name in {each.format for each in tries}:  # the tasks are sound: else nothing below says anything
            assert (await foreign.solve(name)).verdict.passed, name
            assert (await foreign.play(name)).verdict.reward == 0.0, name
        turn = asyncio.Semaphore(_AT_ONCE)
        return list(await asyncio.gather(*(_played(foreign, each, turn, until) for each in tries)))


async def _played(foreign: Foreign, each: Try, turn: asyncio.Semaphore, until: float) -> Try:
    place = _PLACES.get(each.format, "/workspace/depot")
    try:
        async with turn:
            if time.monotonic() > until:
                return each._replace(details="there was no time left")
            played = await foreign.play(each.format, [f"cd {place}\n{each.script}"])
    except RockError as error:
        return each._replace(details=error.message)
    return each._replace(reward=played.verdict.reward, details=played.verdict.details)
