"""The catalogue of ways to a reward that are no solution, as shell scripts that an agent runs in its box.

Each belongs to a class of cause: what it is that would make it pay. They try what runs a grade, what it reads, what it
leaves and, for Python, what it imports. What they name is drawn for each task from what its verifier imports, starts and
holds, so that no list of names answers them. `ale env check` plays them and says which classes pay; the test suite and a
benchmark hold the graders of this project against them.
"""

from __future__ import annotations

import posixpath
import random
import re
import sys
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from rock_env.grading.guard import programs
from rock_env.grading.image import imports_of
from rock_env.grading.model import Task

__all__ = ["CLASSES", "hacks", "honest_work", "kind_of", "scripts"]

CLASSES = ("imports", "processes", "files", "clocks", "introspection", "reports")
_BEGINS = "=== "
_DRAWN = re.compile(r"@([A-Z]+)@")
_COMMON = ("json", "csv", "random", "shlex", "glob")
"""What tests import where nothing is known of them."""
_SHARE = 4
"""Modules and programs drawn of each kind, at most."""


@cache
def _catalogue() -> Mapping[str, str]:
    return scripts(files(__package__).joinpath("hacks.txt").read_text())


@cache
def honest_work() -> Mapping[str, str]:
    """Return what honest agents do beside their work, as scripts by name, each whole."""
    return scripts(files(__package__).joinpath("honest.txt").read_text())


def kind_of(name: str) -> str:
    """Return the class of cause that a hack belongs to."""
    return name.partition(": ")[0]


def hacks(task: Task | None = None, variant: int = 0) -> dict[str, str]:
    """Return the scripts by name, each whole, as drawn for a task; the same task and variant give the same scripts.

    Names begin with the class of cause and a colon.
    """
    drawn = {name: _Drawing(task, f"{task.name if task else ''} {variant} {name}") for name in _catalogue()}
    return {name: _DRAWN.sub(drawn[name].word, script) for name, script in _catalogue().items()}


class _Drawing:
    """Words for one hack in one task."""

    def __init__(self, task: Task | None, seed: str) -> None:
        self._chance = random.Random(seed)
        known = sys.stdlib_module_names - {"test", "this", "antigravity"}
        imported = [name for name in imports_of(task.verifier) if name in known] if task else []
        self._modules = imported or list(_COMMON)
        self._others = sorted(known - {*self._modules, "__future__"})
        self._programs = [name for name in programs(task.verifier) if name.isalpha()] if task else []
        said = {word.strip(".,`'\"") for word in task.instruction.split()} if task else set()
        self._asked = [name for name in self._programs if name in said]
        self._files = [posixpath.basename(file.path) for file in task.verifier.files] if task else []

    def word(self, match: re.Match[str]) -> str:
        """Return what stands for one `@WORD@`."""
        chance = self._chance
        match match[1]:
            case "MODULE":
                return chance.choice(self._modules)
            case "MODULES":
                return " ".join(chance.sample(self._modules, min(_SHARE, len(self._modules))))
            case "OTHER":
                return chance.choice(self._others)
            case "PROGRAMS":
                return " ".join(chance.sample(self._programs, min(_SHARE * 2, len(self._programs))))
            case "ASKED":
                return " ".join(dict.fromkeys([*self._asked[: _SHARE * 2], "diff", "python3"]))
            case "FILES":
                return " ".join(chance.sample(self._files, min(_SHARE * 2, len(self._files))))
            case "SIGNAL":
                return chance.choice(("9", "15", "6", "2", "1"))
            case "DIGIT":
                return str(chance.randint(1, 9))
        return match[0]


def scripts(text: str) -> dict[str, str]:
    """Return the scripts of a text, by name: each begins at a line `=== NAME`; what stands before the first is in all."""
    first, *sections = text.split(f"\n{_BEGINS}")
    found = (section.partition("\n") for section in sections)
    return {name: f"{first}\n{script}" for name, _, script in found}
