"""`ale replay list`: one line per trajectory.

Reads only.
"""

from __future__ import annotations

from pathlib import Path

from agent_runtime.types import Trajectory
from ale.replay.records import iterate
from ale.terminal import print_table, stdout

__all__ = ["list_command"]

HEADS = ("id", "task", "start", "turns", "tokens", "reward", "end", "file")


def list_command(where: str, *, failed: bool, limit: int) -> None:
    """Print at most `limit` trajectories, only the failed ones if asked, and how many there are in all."""
    rows: list[tuple[str, ...]] = []
    total = passed = failures = 0
    try:
        for path, trajectory in iterate(where):
            total += 1
            passed += trajectory.passed and trajectory.has_reward
            failures += not trajectory.has_reward
            if len(rows) < limit and (not trajectory.has_reward or not failed):
                rows.append(_row(path, trajectory))
    finally:  # what lies before a damaged record is shown before the error is
        if total:
            print_table(HEADS, rows)
            stdout().print(
                f"\n{len(rows)} of {total} trajectories shown; {passed} passed, {failures} failed to run"
            )


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
