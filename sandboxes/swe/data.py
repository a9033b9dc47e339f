"""One task of the environment, wherever it comes from: values only."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Files", "SweTask"]

Files = tuple[tuple[str, bytes], ...]
"""(path, content), sorted by path."""


@dataclass(frozen=True, slots=True)
class SweTask:
    """One task's data. Only `name`, `repo` and `report` are for the agent."""

    key: str
    """What the task is found by, in its source."""
    name: str
    """Name of the project's folder."""
    report: str
    repo: Files
    """The project as the agent gets it; paths are relative to the project."""
    hidden: Files
    """The tests that grade it; paths are relative to their own folder."""
    fail_to_pass: tuple[str, ...]
    """Hidden tests that fail before the fix, as `file.py::test`."""
    pass_to_pass: tuple[str, ...]
    """Hidden tests that must go on passing."""
    solution: tuple[str, ...]
    """Actions that fix the bug, without the final `submit`."""
    by_values: bool = False
    """Its hidden tests are ours, and all of a form that `steps` can split."""
    family: str = ""
    difficulty: float = 0.0
