"""Rollouts as the page gets them: rows by windows, one rollout in pieces, and where two part.

Everything that is said of a rollout comes from the readers of `ale replay`; texts are made visible as for a terminal.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agent_runtime.store import read_at
from agent_runtime.types import Trajectory, Turn
from ale.console.pictures import can_be_shown, picture_of
from ale.console.run import UNREADABLE, Rows, finite
from ale.replay.comparing import first_difference
from ale.replay.listing import SORTS, Wanted, fields_of
from ale.replay.places import kind_of
from ale.replay.records import why_contexts_begin_anew
from ale.replay.rows import Row
from ale.replay.showing import parts
from rock_env.telemetry.shown import visible

__all__ = ["changed", "grid", "one", "pair", "window"]

NEWEST = "newest"
"""Beside `SORTS`: the order of time backwards."""
MOST_READ = 500
"""Records that are looked through at a time for a text."""
MOST_TEXT = 20_000
"""Characters of one piece that come unasked."""
MOST_NAMED, AROUND = 50, 2
"""Tasks that are told by name; steps on both sides of one that count with it."""
MOST_TASKS, MOST_STEPS = 300, 400
"""Of a grid: the tasks that were played in most steps, the newest steps."""


def window(rows: Rows, wanted: Wanted, *, sort: str, start: int, limit: int) -> dict[str, Any]:
    """Return at most `limit` rows that fit, beginning with the `start`-th that fits; of a text's with the `start`-th row.

    A text is looked for in a bounded number of records: `next` says where to go on, None at the end.
    """
    if wanted.text or wanted.action != "*":
        return _searched(rows, wanted, start, limit)
    fitting = [each for each in rows.all if wanted.fits(*each)]
    if sort == NEWEST:
        fitting.reverse()
    elif sort in SORTS:
        fitting.sort(key=lambda each: -SORTS[sort](each[1]))
    end = start + limit
    return {
        "rows": [_row(*each) for each in fitting[start:end]],
        "fitting": len(fitting),
        "total": len(rows.all),
        "next": end if end < len(fitting) else None,
    }


def _searched(rows: Rows, wanted: Wanted, start: int, limit: int) -> dict[str, Any]:
    found: list[dict[str, Any]] = []
    at, read, problem = start, 0, ""
    while at < len(rows.all) and len(found) < limit and read < MOST_READ:
        path, row = rows.all[at]
        at, read = at + 1, read + 1
        try:
            if wanted.fits(path, row):
                found.append(_row(path, row))
        except UNREADABLE as error:
            problem = str(error)
    return {
        "rows": found,
        "fitting": None,
        "total": len(rows.all),
        "next": at if at < len(rows.all) else None,
        "problem": visible(problem),
    }


def _row(path: Path, row: Row) -> dict[str, Any]:
    """Return a row as `ale replay list --json` has it, how it came out, and its `name`, the id as it is shown."""
    found = {**fields_of(path, row), "outcome": row.outcome, "kind": kind_of(path), "name": row.id}
    return {name: _plain(value) for name, value in found.items()} | {"id": row.id}


def _plain(value: Any) -> Any:
    """Return what a page may show: text made visible, and None for a number that is none."""
    if isinstance(value, float):
        return finite(value)
    return visible(value) if isinstance(value, str) else value


def grid(rows: Rows) -> dict[str, Any]:
    """Return tasks by steps for each kind of rollouts: passed and graded in each cell, as `ale replay list --grid`."""
    cells: dict[str, dict[tuple[str, str], dict[int, list[int]]]] = {}
    for path, row in rows.all:
        task = cells.setdefault(kind_of(path), {}).setdefault((row.env, row.task_id), {})
        cell = task.setdefault(row.step, [0, 0])
        cell[0] += row.passed and not row.failed
        cell[1] += not row.failed
    found = {}
    for kind, tasks in cells.items():
        steps = sorted({step for each in tasks.values() for step in each})[-MOST_STEPS:]
        first = sorted(tasks, key=lambda task: (-len(tasks[task]), task))[:MOST_TASKS]
        lines = [
            [visible(env), visible(task), [tasks[env, task].get(step) for step in steps]]
            for env, task in first
        ]
        unsolved = [key for key, each in tasks.items() if _is_never_solved(each)]
        found[kind] = {
            "steps": steps,
            "tasks": lines,
            "of": len(tasks),
            "never_solved": [visible(task) for _, task in sorted(unsolved)[:MOST_NAMED]],
            "unsolved": len(unsolved),
        }
    return found


def _is_never_solved(cells: Mapping[int, Sequence[int]]) -> bool:
    return any(graded for _, graded in cells.values()) and not any(passed for passed, _ in cells.values())


def changed(rows: Rows, first: int | None, last: int | None) -> list[dict[str, Any]]:
    """Return the tasks of which another share passed around the last step than around the first, the largest change first.

    Of each: passed and graded rollouts within `AROUND` steps.
    """
    if first is None or last is None:
        return []
    found: dict[tuple[str, str, str], tuple[list[int], list[int]]] = {}
    for path, row in rows.all:
        sides = [side for side, step in enumerate((first, last)) if abs(row.step - step) <= AROUND]
        for side in sides if not row.failed else ():
            key = (kind_of(path), row.env, row.task_id)
            count = found.setdefault(key, ([0, 0], [0, 0]))[side]
            count[0] += row.passed
            count[1] += 1
    told: list[dict[str, Any]] = [
        {
            "kind": kind,
            "task": visible(task),
            "first": one,
            "last": other,
            "by": other[0] / other[1] - one[0] / one[1],
        }
        for (kind, _, task), (one, other) in found.items()
        if one[1] and other[1] and one[0] * other[1] != other[0] * one[1]
    ]
    return sorted(told, key=lambda each: -abs(each["by"]))[:MOST_NAMED]


def one(
    rows: Rows,
    at: int,
    folder: Path,
    *,
    start: int,
    limit: int,
    whole: int | None,
    most_text: int = MOST_TEXT,
) -> dict[str, Any]:
    """Return the pieces `start` to `start + limit` of a rollout, and what stands around it in its run.

    A long text is cut, and says how many characters it has; `whole` is the number of a piece to get uncut. Raise as
    `read_at` does.
    """
    path, row = rows.all[at]
    rollout = read_at(path, row.offset)
    told = list(parts(rollout, tokens=False, why_anew=why_contexts_begin_anew(str(folder))))
    shown = []
    for number, part in enumerate(told[start : start + limit], start=start):
        is_whole = number == whole or len(part.text) <= most_text
        text = visible(part.text if is_whole else part.text[:most_text])
        shown.append(
            {
                "kind": part.kind,
                "turn": part.turn,
                "text": text,
                "chars": len(text) + (0 if is_whole else len(part.text) - most_text),
                "file": part.file if can_be_shown(rollout, part.file) else None,
            }
        )
    turns = {part["turn"] for part in shown if part["kind"] == "turn"}
    source = rollout.reward_source
    return {
        "row": _row(path, row),
        "picture": picture_of(rollout.env, rollout.params_json),
        "parts": shown,
        "of": len(told),
        "turns": [_turn(rollout, turn) for turn in rollout.turns if turn.index in turns],
        "judged": visible(source.raw[:MOST_TEXT]) if source else "",
        "goes_on": "" if rollout.is_session else _continuation(f"{folder}", f"{row.id}:"),
        "near": _near(rows.all, at),
        "sandbox": visible(rollout.hosting.sandbox_id) if rollout.hosting else "",
    }


def _continuation(folder: str, place: str) -> str:
    """Return the command that goes on from a turn, whose number comes last; "" where a name is none for a terminal."""
    words = (folder, place)
    return f"ale replay from {shlex.join(words)}" if all(map(str.isprintable, words)) else ""


def _turn(rollout: Trajectory, turn: Turn) -> dict[str, Any]:
    """Return a turn's numbers: token by token its id, its log-probability and the version that sampled it."""
    reward = rollout.turn_rewards[turn.index] if turn.index < len(rollout.turn_rewards) else None
    return {
        "turn": turn.index,
        "ids": turn.completion_ids.tolist(),
        "logprobs": [_plain(round(float(value), 4)) for value in turn.logprobs],
        "versions": [list(span) for span in turn.spans],
        "context": len(turn.context_ids),
        "reward": _plain(reward),
        "fault": str(rollout.turn_faults[turn.index]) if rollout.turn_faults else "",
    }


def _near(known: Sequence[tuple[Path, Row]], at: int) -> dict[str, Any]:
    """Return the ids of the neighbours that keys lead to, and of the same task in other steps."""
    own = known[at][1]
    failed = next((row.id for _, row in known[at + 1 :] if row.outcome != "passed"), None)
    same = [row for _, row in known if row.task_id == own.task_id and row.env == own.env]
    apart = {row.step: row for row in same if row.step != own.step}
    return {
        "previous": known[at - 1][1].id if at else None,
        "next": known[at + 1][1].id if at + 1 < len(known) else None,
        "next_failed": failed,
        "steps": [[row.step, row.id, row.outcome] for _, row in sorted(apart.items())][:MOST_STEPS],
        "group": [[visible(row.id), row.id, row.outcome] for row in same if row.group_id == own.group_id][
            :64
        ],
        "place": at,
    }


def pair(first: tuple[Path, Row], second: tuple[Path, Row]) -> dict[str, Any]:
    """Return where two rollouts part, as `ale replay diff` says it; nulls where they do not. Raise as `read_at`."""
    told = first_difference(*(read_at(path, row.offset) for path, row in (first, second)))
    where, one, other = told or (None, None, None)
    turn = int(where.split()[1].rstrip(":")) if where and where.startswith("turn ") else None
    return {"where": where, "turn": turn, "first": one and visible(one), "second": other and visible(other)}
