"""`ale replay list`: one line per trajectory, those that were asked for, in the order that was asked for.

Reads rows (`ale.replay.rows`), and no record that has one.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from ale.replay.rows import Row, rows
from ale.terminal import print_table, stdout

__all__ = ["SORTS", "Wanted", "list_command"]

HEADS = ("id", "task", "start", "turns", "tokens", "reward", "end", "file")
SORTS: dict[str, Callable[[Row], float]] = {
    "turns": lambda row: row.turns,
    "tokens": lambda row: row.tokens,
    "reward": lambda row: float("-inf") if row.failed else row.reward,
    "time": lambda row: row.duration_s,
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

    def fits(self, path: Path, row: Row) -> bool:
        """Return whether a rollout is listed."""
        if (self.failed and not row.failed) or (self.passed and (row.failed or not row.passed)):
            return False
        if self.anchored and not row.anchor:
            return False
        texts = (
            (row.task_id, self.task),
            (row.group_id, self.group),
            (row.end, self.end),
            (path.stem, self.file),
        )
        return all(pattern == "*" or fnmatchcase(text, pattern) for text, pattern in texts)


def list_command(where: str, *, wanted: Wanted, sort: str = "", limit: int, as_json: bool = False) -> None:
    """Print at most `limit` of the trajectories that are wanted, and how many there are in all."""
    found: list[tuple[float, Path, Row]] = []
    total = passed = failures = fitting = 0
    key = SORTS.get(sort)
    try:
        for path, row in rows(where):
            total += 1
            passed += row.passed and not row.failed
            failures += row.failed
            if not wanted.fits(path, row):
                continue
            fitting += 1
            if key is not None:
                found.append((key(row), path, row))
                if len(found) > 2 * limit:
                    found = _first(found, limit)
            elif len(found) < limit:
                found.append((0.0, path, row))
    finally:  # what lies beside a damaged record is shown before the error is
        found = _first(found, limit)
        if as_json:
            for _, path, row in found:
                sys.stdout.write(f"{json.dumps(_fields(path, row))}\n")
        elif total:
            print_table(HEADS, [_cells(path, row) for _, path, row in found])
            of = (
                f"{total} trajectories"
                if fitting == total
                else f"{fitting} that fit among {total} trajectories"
            )
            stdout().print(f"\n{len(found)} of {of} shown; {passed} passed, {failures} failed to run")


def _first(found: list[tuple[float, Path, Row]], limit: int) -> list[tuple[float, Path, Row]]:
    return sorted(found, key=lambda each: -each[0])[:limit]


def _cells(path: Path, row: Row) -> tuple[str, ...]:
    return (
        row.id,
        row.task_id,
        f"turn {row.anchor}" if row.anchor else "",
        str(row.turns),
        str(row.tokens),
        "" if row.failed else f"{row.reward:g}{' passed' if row.passed else ''}",
        f"failed: {row.end}" if row.failed else row.end,
        path.name,
    )


def _fields(path: Path, row: Row) -> dict[str, Any]:
    return {
        "id": row.id,
        "env": row.env,
        "task": row.task_id,
        "group": row.group_id,
        "step": row.step,
        "anchor": row.anchor,
        "turns": row.turns,
        "tokens": row.tokens,
        "reward": None if row.failed else row.reward,
        "passed": row.passed,
        "end": row.end,
        "failed": row.failed,
        "duration_s": row.duration_s,
        "file": path.name,
    }
