"""Where trajectory files are: of a run, a folder, or the one file that is named, what they hold, and where new ones go."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from agent_runtime.errors import StoreError
from agent_runtime.store import SUFFIX, files_at, segment_path
from ale.errors import RecordError
from ale.training import runs

__all__ = ["KINDS", "in_order", "kind_of", "new_records", "raise_damaged", "segments"]

KINDS = {
    "step": "training",
    "set_aside": "set aside",
    "eval": "evaluation",
    "expert": "experts",
    "expert_held_out": "experts on held-out tasks",
}
"""How the rollouts of each kind of file are called, in the order of tables; files of other kinds by their own name."""


def in_order(kinds: Iterable[str]) -> list[str]:
    """Return kinds of rollouts as tables have them."""
    known = list(KINDS)
    return sorted(kinds, key=lambda kind: (known.index(kind) if kind in KINDS else len(known), kind))


def kind_of(path: Path) -> str:
    """Return what kind of rollouts a file holds: `step-000012.rollouts` has those of the training, `step`."""
    return path.stem.partition("-")[0]


def segments(where: str) -> list[Path]:
    """Return the trajectory files of a run (by name or folder), of any folder, or the one file named, in the order of time:
    experts, the evaluation before the first step, the first step, the evaluation after it, ...

    Raise `RecordError` where there are none.
    """
    for place in (Path(where), runs.locate(where)):
        if found := files_at(place):
            return sorted(found, key=_time)
    raise RecordError(
        f"no trajectories in {where!r}: it is no run, folder or *{SUFFIX} file.{runs.others(where)}"
    )


def _time(path: Path) -> tuple[int, bool, str]:
    """Return what files are ordered by: the step, after which an evaluation comes; other files come first."""
    kind, _, step = path.stem.partition("-")
    return int(step) if step.isdecimal() else -1, kind == "eval", path.name


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
