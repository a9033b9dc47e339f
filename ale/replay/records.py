"""Find trajectories on disk by run, folder, file and id.

Reads only.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from agent_runtime.errors import CorruptTrajectory, StoreError
from agent_runtime.store import FOLDER, TrajectoryReader
from agent_runtime.types import Trajectory
from ale.errors import RecordError
from ale.training import runs
from rock_env.errors import did_you_mean

SUFFIX = ".traj"

__all__ = ["find", "iterate", "segments"]


def segments(where: str) -> list[Path]:
    """Return the trajectory files of a run (by name or folder), of any folder, or the one file named.

    Raise `RecordError` where there are none.
    """
    for place in (Path(where), runs.locate(where)):
        if place.is_file():
            return [place]
        for folder in (place / FOLDER, place):
            if found := sorted(folder.glob(f"*{SUFFIX}")):
                return found
    raise RecordError(
        f"no trajectories in {where!r}: it is no run, folder or *{SUFFIX} file.{runs.others(where)}"
    )


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
    if len(damaged) > 1:
        raise RecordError(
            f"{len(damaged)} records or files are damaged; all others were read. The first: {damaged[0]}"
        ) from damaged[0]
    if damaged:
        raise damaged[0]


def find(where: str, identity: str | None) -> Trajectory:
    """Return the trajectory with this id, or the first one. Raise `RecordError` naming an id that is near."""
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
