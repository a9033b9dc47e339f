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

__all__ = ["find", "has_window", "iterate"]


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


def has_window(where: str) -> bool:
    """Return whether these are records of a run whose prompts hold the newest observations alone (`agent.window_turns`).

    Each of its turns begins a context anew, by that setting.
    """
    place = Path(where) if Path(where).exists() else runs.locate(where)
    for folder in (place, *place.absolute().parents[:2]):
        if (folder / runs.CONFIG).is_file():
            return runs.recorded_config(folder).agent.window_turns > 0
    return False


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
