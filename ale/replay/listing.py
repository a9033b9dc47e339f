"""`ale replay list`: one line per trajectory, those that were asked for, in the order that was asked for.

Reads rows (`ale.replay.rows`), and a record that has one only where its words are asked for.
"""

from __future__ import annotations

import json
import math
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, ClassVar

from agent_runtime.store import read_at
from agent_runtime.types import Trajectory
from ale.replay.places import KINDS, in_order, kind_of
from ale.replay.rows import Outcomes, Row, rows
from ale.terminal import print_table, stdout

__all__ = ["HARDEST", "SORTS", "Wanted", "fields_of", "grid_command", "grouped_command", "list_command"]

HEADS = ("id", "task", "start", "turns", "tokens", "reward", "end", "file")
SORTS: dict[str, Callable[[Row], float]] = {
    "turns": lambda row: row.turns,
    "tokens": lambda row: row.tokens,
    "reward": lambda row: float("-inf") if row.failed else row.reward,
    "time": lambda row: row.duration_s,
}
"""What `--sort` takes; the largest come first."""


_KEYS: dict[str, Callable[[Row], object]] = {
    "task": lambda row: row.task_id,
    "step": lambda row: f"{row.step:06d}",
    "group": lambda row: row.group_id,
    "env": lambda row: row.env,
}
"""What `--by` takes."""
HARDEST = "hardest"
"""Sorts what `--by` counts together by the share that passed, the lowest first."""
_ANY = Outcomes()


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which trajectories are listed."""

    outcomes: Outcomes = _ANY
    anchored: bool = False
    """Only those that began at an anchor."""
    task: str = "*"
    """A pattern (`*`, `?`, `[abc]`) that the task's id must fit."""
    group: str = "*"
    end: str = "*"
    """Of the stop reason, or of the failure's code."""
    file: str = "*"
    """Of the file's name without its ending, such as `eval-*`."""
    action: str = "*"
    """A pattern that one of the rollout's actions fits, such as `bash *`: what called a tool."""
    text: str = ""
    """Letters, of either case, that are in an action, an observation, the grader's output or the sandbox's id."""
    env: str = "*"
    """Of the environment's name, without its version."""
    step: int | None = None
    """The one that asked for it; None: any."""

    def fits(self, path: Path, row: Row) -> bool:
        """Return whether a rollout is listed."""
        if not self.outcomes.fits(row):
            return False
        if (self.anchored and not row.anchor) or self.step not in (None, row.step):
            return False
        texts = (
            (row.task_id, self.task),
            (row.group_id, self.group),
            (row.end, self.end),
            (path.stem, self.file),
            (_env(row), self.env),
        )
        if not all(pattern == "*" or fnmatchcase(text, pattern) for text, pattern in texts):
            return False
        return (self.action == "*" and not self.text) or self._says(read_at(path, row.offset))

    def _says(self, rollout: Trajectory) -> bool:
        """Return whether a rollout's own words fit: no row holds them."""
        if self.action != "*" and not any(fnmatchcase(action, self.action) for action in rollout.actions):
            return False
        box = rollout.hosting.sandbox_id if rollout.hosting else ""
        said = (
            *rollout.actions,
            rollout.first_observation,
            *rollout.observations,
            rollout.grader_output,
            box,
        )
        return not self.text or any(self.text.lower() in each.lower() for each in said)


def list_command(where: str, *, wanted: Wanted, sort: str = "", limit: int, as_json: bool = False) -> None:
    """Print at most `limit` of the trajectories that are wanted, and how many there are in all."""
    found: list[tuple[float, Path, Row]] = []
    counts: dict[str, Counter[str]] = {}
    fitting = 0
    key = SORTS.get(sort)
    try:
        for path, row in rows(where):
            counts.setdefault(kind_of(path), Counter())[row.outcome] += 1
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
                sys.stdout.write(f"{json.dumps(fields_of(path, row))}\n")
        elif counts:
            several = len({row.env for _, _, row in found}) > 1
            cells = [_cells(path, row, several) for _, path, row in found]
            print_table(HEADS, cells, least=("file", "tokens", "start"))
            total = sum(each.total() for each in counts.values())
            of = "" if fitting == total else f"{fitting} that fit among "
            stdout().print(f"\n{len(found)} of {of}{total} trajectories shown")
            for kind in in_order(counts):
                stdout().print(f"{KINDS.get(kind, kind)}: {_told(counts[kind])}")


def grouped_command(
    where: str, *, wanted: Wanted, by: str, sort: str = "", limit: int, as_json: bool = False
) -> None:
    """Print one line per task, step, group or environment: rollouts, successes, rewards.

    The rollouts of the training, of evaluations and of experts are in tables of their own, each in the order of time; or
    with `sort="hardest"` by the share that passed, the lowest first.
    """
    groups: dict[str, dict[tuple[str, str], list[Row]]] = {}
    try:
        for path, row in rows(where):
            if wanted.fits(path, row):
                env = row.env if by == "task" else ""  # environments have tasks of the same name
                of_kind = groups.setdefault(kind_of(path), {})
                of_kind.setdefault((env, str(_KEYS[by](row))), []).append(row)
    finally:
        several = len({env for of_kind in groups.values() for env, _ in of_kind}) > 1
        for kind in in_order(groups):
            lines = [
                _sum(_task(found[0], several) if by == "task" else key, found)
                for (_, key), found in groups[kind].items()
            ]
            if by == "step":  # a rollout may be learned in a later step than it was asked for
                lines.sort(key=lambda each: each.key)
            if sort == HARDEST:
                lines.sort(key=lambda each: each.place)
            _print_groups(lines, by=by, kind=kind, sort=sort, limit=limit, as_json=as_json)


def _print_groups(
    lines: Sequence[_Group], *, by: str, kind: str, sort: str, limit: int, as_json: bool
) -> None:
    if as_json:
        for each in lines[:limit]:
            sys.stdout.write(f"{json.dumps({'kind': kind} | each.fields(by))}\n")
        return
    stdout().print(KINDS.get(kind, kind))
    print_table((by, *_Group.HEADS), [each.cells() for each in lines[:limit]], least=("turns", "errored"))
    order = "the hardest first" if sort == HARDEST else "in the order of time"
    stdout().print(f"{min(limit, len(lines))} of {len(lines)} shown, {order}\n")


def grid_command(where: str, *, wanted: Wanted, limit: int) -> None:
    """Print grids of tasks by steps, one of the training's rollouts, of evaluations and of experts: in each cell the
    successes among the rollouts that have a reward."""
    grids: dict[str, dict[tuple[str, str, int], list[Row]]] = {}
    try:
        for path, row in rows(where):
            if wanted.fits(path, row):
                grid = grids.setdefault(kind_of(path), {})
                grid.setdefault((row.env, row.task_id, row.step), []).append(row)
    finally:
        several = len({env for grid in grids.values() for env, _, _ in grid}) > 1
        for kind in in_order(grids):
            stdout().print(KINDS.get(kind, kind))
            _print_grid(grids[kind], several, limit)


def _print_grid(found: dict[tuple[str, str, int], list[Row]], several: bool, limit: int) -> None:
    cells = {(_task(each[0], several), step): each for (_, _, step), each in found.items()}
    steps = sorted({step for _, step in cells})
    played = Counter(task for task, _ in cells)
    tasks = sorted(played, key=lambda task: (-played[task], task))
    lines = [(task, *(_cell(cells.get((task, step), [])) for step in steps)) for task in tasks[:limit]]
    print_table(("task", *map(str, steps)), lines, least=tuple(map(str, steps)))
    stdout().print(f"{len(lines)} of {len(tasks)} tasks shown, those played in the most steps first\n")


def _cell(found: Sequence[Row]) -> str:
    done = [row for row in found if not row.failed]
    failed = f" +{len(found) - len(done)} errored" if len(done) < len(found) else ""
    return f"{sum(row.passed for row in done)}/{len(done)}{failed}" if found else ""


@dataclass(frozen=True, slots=True)
class _Group:
    """Some rollouts together."""

    HEADS: ClassVar[tuple[str, ...]] = ("rollouts", "passed", "unsolved", "errored", "reward", "turns")

    key: str
    rollouts: int
    passed: int
    failed: int
    reward: float
    """Mean of those that have one; NaN where none has."""
    turns: float

    @property
    def place(self) -> tuple[float, str]:
        """Return what groups are ordered by: the share that passed, then the name."""
        return self.passed / max(1, self.rollouts - self.failed), self.key

    def cells(self) -> tuple[str, ...]:
        reward = "" if math.isnan(self.reward) else f"{self.reward:.3f}"
        unsolved = self.rollouts - self.passed - self.failed
        counts = map(str, (self.rollouts, self.passed, unsolved, self.failed))
        return self.key, *counts, reward, f"{self.turns:.1f}"

    def fields(self, by: str) -> dict[str, Any]:
        reward = None if math.isnan(self.reward) else self.reward
        counts = {"rollouts": self.rollouts, "passed": self.passed, "failed": self.failed}
        return {by: self.key, **counts, "reward": reward, "turns": self.turns}


def _sum(key: str, found: Sequence[Row]) -> _Group:
    done = [row for row in found if not row.failed]
    return _Group(
        key,
        len(found),
        sum(row.passed for row in done),
        len(found) - len(done),
        sum(row.reward for row in done) / len(done) if done else math.nan,
        sum(row.turns for row in found) / len(found),
    )


def _told(counts: Counter[str]) -> str:
    """Return how many rollouts there are and how they came out, for a reader."""
    outcomes = ", ".join(f"{counts[what]} {what}" for what in ("passed", "unsolved", "errored"))
    return f"{counts.total()} rollouts, {outcomes}"


def _first(found: list[tuple[float, Path, Row]], limit: int) -> list[tuple[float, Path, Row]]:
    return sorted(found, key=lambda each: -each[0])[:limit]


def _env(row: Row) -> str:
    return row.env.partition("@")[0]


def _task(row: Row, several: bool) -> str:
    """Return how a rollout's task is called beside those of one environment, or of several."""
    return f"{_env(row)}/{row.task_id}" if several else row.task_id


def _cells(path: Path, row: Row, several: bool) -> tuple[str, ...]:
    return (
        row.id,
        _task(row, several),
        f"turn {row.anchor}" if row.anchor else "",
        str(row.turns),
        str(row.tokens),
        "" if row.failed else f"{row.reward:g}{' passed' if row.passed else ''}",
        f"errored: {row.end}" if row.failed else row.end,
        path.name,
    )


def fields_of(path: Path, row: Row) -> dict[str, Any]:
    """Return a rollout as programs list it; a rollout that errored has the reward None."""
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
