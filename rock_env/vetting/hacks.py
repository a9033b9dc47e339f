"""The catalogue of ways to a reward that are no solution, as shell scripts that an agent runs in its box.

They try what runs a grade, what it reads, what it leaves and, for Python, what it imports. `ale env check` plays them and
says which pay; the test suite and a benchmark hold the graders of this project against them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files

__all__ = ["hacks", "honest_work", "scripts"]

_BEGINS = "=== "


@cache
def hacks() -> Mapping[str, str]:
    """Return the scripts by name, each whole."""
    return scripts(files(__package__).joinpath("hacks.txt").read_text())


@cache
def honest_work() -> Mapping[str, str]:
    """Return what honest agents do beside their work, as scripts by name, each whole."""
    return scripts(files(__package__).joinpath("honest.txt").read_text())


def scripts(text: str) -> dict[str, str]:
    """Return the scripts of a text, by name: each begins at a line `=== NAME`; what stands before the first is in all."""
    first, *sections = text.split(f"\n{_BEGINS}")
    found = (section.partition("\n") for section in sections)
    return {name: f"{first}\n{script}" for name, _, script in found}
