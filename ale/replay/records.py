"""Find trajectories on disk by run, folder, file and id.

Reads only.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from agent_runtime.errors import CorruptTrajectory, StoreError
from agent_runtime.store import TrajectoryReader
from agent_runtime.types import Trajectory
from ale.errors import RecordError
from ale.replay.places import raise_damaged, segments
from ale.replay.rows import found_by_row
from ale.training import runs
from rock_env.errors import did_you_mean
from rock_env.foreign import budget

__all__ = ["find", "iterate", "why_contexts_begin_anew"]


def iterate(where: str) -> Iterator[tuple[Path, Trajectory]]:
    """Yield every trajectory with its file, in the order written; damage hides no intact record.

    Raise `StoreError` for what cannot be read, or `RecordError` for several such places, after everything that is intact.
    """
    damaged: list[StoreError] = []
    for path in segments(where):
        records: list[CorruptTrajectory] = []
        try:
            for trajectory in TrajectoryReader(path, damaged=records):
                yield path, trajectory
        except StoreError as error:
            damaged.append(error)
        damaged += records
    raise_damaged(damaged)


def why_contexts_begin_anew(where: str) -> str:
    """Return the sentence that says by which setting of their run every turn of these records begins a context; "" for none.

    Reads the run's `config.toml` as it is: a run of a script's own objects can be looked at without them.
    """
    place = Path(where) if Path(where).exists() else runs.locate(where)
    for folder in (place, *place.absolute().parents[:2]):
        if (folder / runs.CONFIG).is_file():
            agent = budget.read_settings(folder / runs.CONFIG).get("agent", {})
            turns = agent.get("window_turns", 0) if isinstance(agent, dict) else 0
            return (
                f"Every turn begins a context of its own, as agent.window_turns={turns} says."
                if turns
                else ""
            )
    return ""


def find(where: str, identity: str | None) -> Trajectory:
    """Return the trajectory with this id, or the first one. Raise `RecordError` naming an id that is near."""
    if identity is not None and (quick := found_by_row(where, identity)) is not None:
        return quick
    seen: list[str] = []
    for _, trajectory in iterate(where):
        if identity is None or trajectory.id == identity:
            return trajectory
        seen.append(trajectory.id)
    if not seen:
        raise RecordError(f"the trajectory files of {where!r} hold no trajectory")
    raise RecordError(
        f"no trajectory {identity!r} among the {len(seen)} of {where!r}.{did_you_mean(str(identity), seen)} "
        f"`ale replay list {where}` shows them all."
    )
