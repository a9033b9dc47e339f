"""`ale replay list`: one line per trajectory, those that were asked for, in the order that was asked for.

Reads only.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from agent_runtime.types import Trajectory
from ale.replay.records import iterate
from ale.terminal import print_table, stdout

__all__ = ["SORTS", "Wanted", "list_command"]

HEADS = ("id", "task", "start", "turns", "tokens", "reward", "end", "file")
SORTS: dict[str, Callable[[Trajectory], float]] = {
    "turns": lambda trajectory: len(trajectory.turns),
    "tokens": lambda trajectory: trajectory.sampled_tokens,
    "reward": lambda trajectory: trajectory.reward if trajectory.has_reward else float("-inf"),
    "time": lambda trajectory: trajectory.duration_s,
}
"""What `--sort` takes; the largest come first."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which trajectories are listed."""

    failed: bool = False
    passed: bool = False
    anchored: bool = False
    """Only those that began at an anchor."""
    task: str = "*"
    """A pattern (`*`, `?`, `[abc]`) that the task's id must fit."""
    group: str = "*"
    end: str = "*"
    """Of the stop reason, or of the failure's code."""
    file: str = "*"
    """Of the file's name without its ending, such as `eval-*`."""

    def fits(self, path: Path, trajectory: Trajectory) -> bool:
        """Return whether a trajectory is listed."""
        if (self.failed and trajectory.has_reward) or (
            self.passed and not (trajectory.passed and trajectory.has_reward)
        ):
            return False
        if self.anchored and not trajectory.start.anchor:
            return False
        texts = (
            (trajectory.task_id, self.task),
            (trajectory.group_id, self.group),
            (_end(trajectory), self.end),
            (path.stem, self.file),
        )
        return all(pattern == "*" or fnmatchcase(text, pattern) for text, pattern in texts)


def list_command(where: str, *, wanted: Wanted, sort: str = "", limit: int, as_json: bool = False) -> None:
    """Print at most `limit` of the trajectories that are wanted, and how many there are in all."""
    found: list[tuple[float, Path, Trajectory]] = []
    total = passed = failures = fitting = 0
    key = SORTS.get(sort)
    try:
        for path, trajectory in iterate(where):
            total += 1
            passed += trajectory.passed and trajectory.has_reward
            failures += not trajectory.has_reward
            if not wanted.fits(path, trajectory):
                continue
            fitting += 1
            if key is not None:
                found.append((key(trajectory), path, trajectory))
                if len(found) > 2 * limit:
                    found = _first(found, limit)
            elif len(found) < limit:
                found.append((0.0, path, trajectory))
    finally:  # what lies beside a damaged record is shown before the error is
        found = _first(found, limit)
        if as_json:
            for _, path, trajectory in found:
                sys.stdout.write(f"{json.dumps(_fields(path, trajectory))}\n")
        elif total:
            print_table(HEADS, [_row(path, trajectory) for _, path, trajectory in found])
            of = (
                f"{total} trajectories"
                if fitting == total
                else f"{fitting} that fit among {total} trajectories"
            )
            stdout().print(f"\n{len(found)} of {of} shown; {passed} passed, {failures} failed to run")


def _first(found: list[tuple[float, Path, Trajectory]], limit: int) -> list[tuple[float, Path, Trajectory]]:
    return sorted(found, key=lambda each: -each[0])[:limit]


def _end(trajectory: Trajectory) -> str:
    return trajectory.failure.code if trajectory.failure else str(trajectory.stop_reason)


def _row(path: Path, trajectory: Trajectory) -> tuple[str, ...]:
    failure = trajectory.failure
    return (
        trajectory.id,
        trajectory.task_id,
        f"turn {trajectory.start.anchor}" if trajectory.start.anchor else "",
        str(len(trajectory.turns)),
        str(trajectory.sampled_tokens),
        "" if failure else f"{trajectory.reward:g}{' passed' if trajectory.passed else ''}",
        f"failed: {failure.code}" if failure else str(trajectory.stop_reason),
        path.name,
    )


def _fields(path: Path, trajectory: Trajectory) -> dict[str, Any]:
    return {
        "id": trajectory.id,
        "env": trajectory.env,
        "task": trajectory.task_id,
        "group": trajectory.group_id,
        "step": trajectory.policy_step,
        "anchor": trajectory.start.anchor,
        "turns": len(trajectory.turns),
        "tokens": trajectory.sampled_tokens,
        "reward": trajectory.reward if trajectory.has_reward else None,
        "passed": trajectory.passed,
        "end": _end(trajectory),
        "failed": not trajectory.has_reward,
        "duration_s": trajectory.duration_s,
        "file": path.name,
    }
