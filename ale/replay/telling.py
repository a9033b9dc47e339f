"""What `ale replay score` prints of rewards that were given anew, and where it keeps them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from agent_runtime.store import write_segment
from agent_runtime.types import Trajectory
from ale.errors import Diverged
from ale.replay.places import new_records
from ale.terminal import print_table, stdout

__all__ = ["Scored", "tell"]

_SHOWN = 50


@dataclass(frozen=True, slots=True)
class Scored:
    """A rollout whose reward was asked for anew."""

    recorded: Trajectory
    then: float | None
    """The reward on record; None: it has none."""
    today: Trajectory | None
    """The record with today's reward; None: there is none."""
    apart: str
    """What is otherwise today, for a reader; "" where nothing is."""


def tell(scored: Sequence[Scored], out: Path | None) -> None:
    """Print what is otherwise and keep the records, if wanted. Raise `Diverged` where anything is otherwise."""
    path = new_records(out, "scored") if out else None
    rows = [
        (
            each.recorded.id,
            each.recorded.task_id,
            "none" if each.then is None else f"{each.then:g}",
            each.apart,
        )
        for each in scored
        if each.apart
    ]
    if rows:
        print_table(("id", "task", "recorded", "today"), rows[:_SHOWN])
    graded = [each.today for each in scored if each.today is not None]
    stdout().print(
        f"\n{len(graded)} of {len(scored)} graded; {len(rows)} have another reward or none, "
        f"{min(len(rows), _SHOWN)} shown"
    )
    if path is not None:
        write_segment(path, graded)
        stdout().print(f"kept in {path}")
    if rows:
        raise Diverged(
            f"{len(rows)} of {len(scored)} rollouts have another reward today, or cannot be graded"
        )
