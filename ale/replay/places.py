"""Where trajectory files are: of a run, a folder, or the one file that is named, and where new ones go."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from agent_runtime.errors import StoreError
from agent_runtime.store import SUFFIX, files_at, segment_path
from ale.errors import RecordError
from ale.training import runs

__all__ = ["new_records", "raise_damaged", "segments"]


def segments(where: str) -> list[Path]:
    """Return the trajectory files of a run (by name or folder), of any folder, or the one file named.

    Raise `RecordError` where there are none.
    """
    for place in (Path(where), runs.locate(where)):
        if found := files_at(place):
            return found
    raise RecordError(
        f"no trajectories in {where!r}: it is no run, folder or *{SUFFIX} file.{runs.others(where)}"
    )


def new_records(out: Path, kind: str) -> Path:
    """Return where new records of a kind go in a folder. Raise `RecordError` where such records are there already."""
    path = segment_path(out, kind)
    if path.exists():
        raise RecordError(f"{path} is there already: a record is never written again. Choose another --out.")
    return path


def raise_damaged(damaged: Sequence[StoreError]) -> None:
    """Raise what could not be read, after all that could: the one error, or `RecordError` for several."""
    if len(damaged) > 1:
        raise RecordError(
            f"{len(damaged)} records or files are damaged; all others were read. The first: {damaged[0]}"
        ) from damaged[0]
    if damaged:
        raise damaged[0]
