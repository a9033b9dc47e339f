"""Where trajectory files are: of a run, a folder, or the one file that is named."""

from __future__ import annotations

from pathlib import Path

from agent_runtime.store import FOLDER
from ale.errors import RecordError
from ale.training import runs

__all__ = ["SUFFIX", "segments"]

SUFFIX = ".traj"


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
