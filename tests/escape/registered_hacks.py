"""Hacks and honest work on registered tasks of three formats, played on a real server in real containers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from foreign_tasks import Foreign, serving
from hacked_env import FIX
from hacked_tasks import FORMATS, read_hacked
from hacks import HACKS

from rock_env.errors import RockError
from rock_env.vetting.hacks import hacks, scripts

__all__ = ["FORMATS", "Try", "all_tries", "play_all"]

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


def all_tries() -> list[Try]:
    """Return each hack and each honest work, in each format."""
    own = {f"swe: {name}": hack.script for name, hack in HACKS.items() if hack.task == "train/0"}
    paid = {name: script for name, script in own.items() if name not in _HONEST_IN_A_FORK}
    text = Path(__file__).with_name("honest_work.txt").read_text()
    work = {name: f"{script}\n{FIX} 2>/dev/null" for name, script in scripts(text).items()}
    return [
        *(
            Try(form, name, script, honest=False)
            for name, script in {**hacks(), **paid}.items()
            for form in FORMATS
        ),
        *(
            Try(form, name, script, honest=True)
            for name, script in work.items()
            for form in FORMATS
            if form != "swe_bench" or name not in _PATCH_ONLY
        ),
    ]


def play_all(tries: Sequence[Try], folder: Path) -> list[Try]:
    """Play each in an episode of its own, three at once. Needs a Docker engine and the image of `hacked_tasks`."""
    return asyncio.run(_play_all(tries, folder))


async def _play_all(tries: Sequence[Try], folder: Path) -> list[Try]:
    async with serving(read_hacked(folder), folder) as foreign:
        for form in FORMATS:  # the tasks are sound: else nothing below says anything
            assert (await foreign.solve(form)).verdict.passed, form
            assert (await foreign.play(form)).verdict.reward == 0.0, form
        return list(await asyncio.gather(*(_played(foreign, each) for each in tries)))


async def _played(foreign: Foreign, each: Try) -> Try:
    place = _PLACES.get(each.format, "/workspace/depot")
    try:
        played = await foreign.play(each.format, [f"cd {place}\n{each.script}"])
    except RockError as error:
        return each._replace(details=error.message)
    return each._replace(reward=played.verdict.reward, details=played.verdict.details)
