"""What a task is before it is a `TaskSpec`: files, running services, checks and a solution, drawn from a template.

Made by the templates in `families/`, read by the catalog, the environment, the grade and the oracle. Values only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from sandboxes.terminal.checks import Check
from sandboxes.terminal.words import Draw

__all__ = ["Family", "Scenario", "Service", "Split", "Template"]

Family = Literal["files", "archives", "processes", "git", "data"]
Split = Literal["train", "held_out"]


@dataclass(frozen=True, slots=True)
class Service:
    """A process that runs in the box when the task begins."""

    argv: tuple[str, ...]
    ready: str
    """A file that it writes once it is up."""
    secret: str = ""
    """A line given to its standard input: what only the running process knows, and tells when it is treated rightly."""
    env: tuple[tuple[str, str], ...] = ()
    answer: str = ""
    """What it is to confirm when it is asked before the grade, by a line on its standard input; empty: it is not asked."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """One task. All paths are relative to the task's folder."""

    goal: str
    """What is wanted, in plain words."""
    checks: tuple[Check, ...]
    solution: tuple[str, ...]
    """Tool actions that solve it, without the final `submit`."""
    files: Mapping[str, bytes] = field(default_factory=dict)
    setup: str = ""
    """Shell script run on the files before the agent starts, of which nothing is left."""
    services: tuple[Service, ...] = ()
    goes_on: tuple[str, ...] = ()
    """Command lines of processes that must run in the end, as the same processes, and not be stopped."""
    ends: tuple[str, ...] = ()
    """Command lines of processes that must have ended."""
    shortcuts: tuple[str, ...] = ()
    """Actions of somebody lazy or mistaken, each of which alone must score 0."""


@dataclass(frozen=True, slots=True)
class Template:
    """A kind of task. `draw` is pure: equal draws give equal scenarios."""

    name: str
    family: Family
    split: Split
    draw: Callable[[Draw], Scenario]
