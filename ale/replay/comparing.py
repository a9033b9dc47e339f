"""`ale replay diff`: what two runs, folders or files of trajectories do not have in common, and where it begins.

Reads only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from agent_runtime.types import Trajectory
from ale.replay.records import iterate
from ale.replay.showing import said_version
from ale.terminal import print_table, stdout
from ale.training import runs
from rock_env.foreign import budget

__all__ = ["diff_command", "first_difference", "settings_apart"]

_BEFORE = ("env", "params_json", "task_id", "seed", "start", "first_observation")
"""Fields that stand before the first turn."""
_AFTER = ("reward", "passed", "stop_reason", "failure")
_SHOWN = 60
_UNSET = "not set"


def diff_command(first: str, second: str, *, limit: int) -> int:
    """Print what differs, at most `limit` rollouts of it; return 1 if anything does. Raise `RecordError`, `StoreError`."""
    out = stdout()
    settings = list(settings_apart(_config(first), _config(second)))
    if settings:
        print_table(("setting", first, second), settings)
    left = {_key(path, trajectory): trajectory for path, trajectory in iterate(first)}
    same, apart, extra = 0, [], 0
    for path, trajectory in iterate(second):
        mine = left.pop(_key(path, trajectory), None)
        if mine is None:
            extra += 1
        elif told := first_difference(mine, trajectory):
            apart.append((path.name, trajectory.id, *told))
        else:
            same += 1
    if apart:
        print_table(("file", "id", "differs in", first, second), apart[:limit])
    if len(apart) > limit:
        out.print(f"... and {len(apart) - limit} more")
    out.print(
        f"{same} rollouts are equal, {len(apart)} differ, {len(left)} are only in {first}, {extra} only in {second}; "
        f"{len(settings)} settings differ"
    )
    return int(bool(settings or apart or left or extra))


def _key(path: Path, trajectory: Trajectory) -> tuple[str, str]:
    return path.name, trajectory.id


def first_difference(one: Trajectory, other: Trajectory) -> tuple[str, str, str] | None:
    """Return (where, how it is in one, how in the other) of the first difference in the order of the rollout, or None.

    Times are no difference: no two runs have the same.
    """
    for name in _BEFORE:
        if getattr(one, name) != getattr(other, name):
            return name, _shown(getattr(one, name)), _shown(getattr(other, name))
    for turn in range(min(len(one.turns), len(other.turns))):
        for name, mine, theirs in _turn(one, other, turn):
            equal = (
                np.array_equal(mine, theirs, equal_nan=mine.dtype.kind == "f")
                if _both(mine, theirs)
                else mine == theirs
            )
            if not equal:
                return f"turn {turn}: {name}", _shown(mine), _shown(theirs)
    if len(one.turns) != len(other.turns):
        return "number of turns", str(len(one.turns)), str(len(other.turns))
    for name in _AFTER:
        mine, theirs = getattr(one, name), getattr(other, name)
        if mine != theirs and not (mine != mine and theirs != theirs):  # NaN is the reward of a failure
            return name, _shown(mine), _shown(theirs)
    return None


def _turn(one: Trajectory, other: Trajectory, turn: int) -> Iterator[tuple[str, Any, Any]]:
    """Yield what one turn consists of, in the order in which it came about."""
    mine, theirs = one.turns[turn], other.turns[turn]
    yield "parent", mine.parent, theirs.parent
    yield "context_ids", mine.context_ids, theirs.context_ids
    yield "policy_version", said_version(mine.policy_version), said_version(theirs.policy_version)
    for name in ("completion_ids", "logprobs", "finish_reason"):
        yield name, getattr(mine, name), getattr(theirs, name)
    for name, values in (
        ("action", "actions"),
        ("observation", "observations"),
        ("reward", "turn_rewards"),
    ):
        yield name, getattr(one, values)[turn], getattr(other, values)[turn]


def _both(mine: object, theirs: object) -> bool:
    return isinstance(mine, np.ndarray) and isinstance(theirs, np.ndarray)


def _shown(value: object) -> str:
    text = str(value.tolist() if isinstance(value, np.ndarray) else value).replace("\n", "\\n")
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _config(where: str) -> Mapping[str, Any]:
    """Return a run's settings; nothing for what is no run."""
    for place in (Path(where), runs.locate(where)):
        if (place / "config.toml").is_file():
            return budget.read_settings(place / "config.toml")
    return {}


def settings_apart(
    one: Mapping[str, Any], other: Mapping[str, Any], prefix: str = ""
) -> Iterator[tuple[str, str, str]]:
    """Yield (dotted name, value, other value) of each setting that differs."""
    for name in sorted({*one, *other}):
        mine, theirs = one.get(name, _UNSET), other.get(name, _UNSET)
        sections = [value for value in (mine, theirs) if isinstance(value, Mapping)]
        if sections and all(value is _UNSET or isinstance(value, Mapping) for value in (mine, theirs)):
            ours, others = (value if isinstance(value, Mapping) else {} for value in (mine, theirs))
            yield from settings_apart(ours, others, f"{prefix}{name}.")
        elif mine != theirs:
            yield f"{prefix}{name}", _shown(mine), _shown(theirs)
