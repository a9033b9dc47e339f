"""The runs that the console shows: a list the server made, where a run keeps its place. Callers name places, no paths."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Lock

from agent_runtime.store import files_at
from ale.console.run import WatchedRun
from ale.errors import RecordError
from ale.training import runs
from ale.training.reading import METRICS

__all__ = ["Catalog"]

MOST_RUNS = 2000
"""Of one folder: a page of more is of no use."""


class Catalog:
    """Runs by their place. Folders are looked through again when the list is asked for; what is new is added at its end."""

    def __init__(self, names: Sequence[str]) -> None:
        """Take runs by name or folder, and folders of runs; none is `runs/`. Raise `RecordError` for what is neither."""
        self._places = [_place(name) for name in names] or [runs.HOME]
        self._runs: list[WatchedRun] = []
        self._known: set[Path] = set()
        self._lock = Lock()

    @property
    def places(self) -> str:
        """Return where is looked, for a reader."""
        return ", ".join(map(str, self._places))

    def all(self) -> list[WatchedRun]:
        """Return all runs, those that came since at the end. One that was deleted keeps its place."""
        with self._lock:
            for place in self._places:
                for folder in _runs_at(place):
                    if (whole := folder.absolute()) not in self._known and len(self._runs) < MOST_RUNS:
                        self._known.add(whole)
                        self._runs.append(WatchedRun(whole))
            return list(self._runs)

    def at(self, place: int) -> WatchedRun | None:
        """Return the run at a place, None where there is none."""
        known = self._runs or self.all()
        return known[place] if 0 <= place < len(known) else None


def _place(name: str) -> Path:
    found = next((place for place in (Path(name), runs.locate(name)) if place.is_dir()), None)
    if found is None:
        raise RecordError(
            f"{name!r} is neither a run nor a folder: got nothing there, expected a run of runs/, a path with a /, or a "
            f"folder that holds runs.{runs.others(name)}"
        )
    return found


def _is_run(folder: Path) -> bool:
    return any((folder / name).is_file() for name in (runs.CONFIG, METRICS)) or bool(files_at(folder))


def _runs_at(place: Path) -> Iterator[Path]:
    """Yield the run at a place, or those in the folder. Links in it are passed over: they may lead anywhere."""
    if _is_run(place):
        yield place
        return
    try:
        inside = sorted(place.iterdir())
    except OSError:
        return
    yield from (each for each in inside if each.is_dir() and not each.is_symlink() and _is_run(each))
