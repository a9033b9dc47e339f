"""The runs that the console shows: a list the server made. Callers say a name of the list, no path.

A run's place is its folder's name. Where two listed runs share it, or it has other signs than an address should, a part of
the digest of the folder follows, by which a run can always be asked for.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Lock

from agent_runtime.store import files_at
from ale.console.run import WatchedRun
from ale.errors import RecordError
from ale.training import runs
from ale.training.reading import METRICS

__all__ = ["PLACE", "Catalog", "place_of"]

PLACE = r"[A-Za-z0-9._+=-]{1,80}(?:~[0-9a-f]{8})?"
"""What a run's place looks like; a plain folder name is one as it stands."""

_OTHER_SIGNS = re.compile(r"^\.+$|[^A-Za-z0-9._+=-]")
MOST_RUNS = 2000
"""Of one folder: a page of more is of no use."""


class Catalog:
    """Runs by their place. Folders are looked through again when the list is asked for; what is new is added at its end."""

    def __init__(self, names: Sequence[str]) -> None:
        """Take runs by name or folder, and folders of runs; none is `runs/`. Raise `RecordError` for what is neither."""
        self._places = [_place(name) for name in names] or [runs.HOME]
        self._known: set[Path] = set()
        self._runs: dict[str, WatchedRun] = {}
        self._named: dict[str, list[str]] = {}
        """By name, the whole places that begin with it."""
        self._lock = Lock()

    @property
    def places(self) -> str:
        """Return where is looked, for a reader."""
        return ", ".join(map(str, self._places))

    def all(self) -> dict[str, WatchedRun]:
        """Return all runs by their place, those that came since at the end. One that was deleted stays."""
        with self._lock:
            for place in self._places:
                for found in _runs_at(place):
                    if (folder := found.absolute()) not in self._known and len(self._known) < MOST_RUNS:
                        self._known.add(folder)
                        whole = _whole(folder)
                        self._runs[whole] = WatchedRun(folder)
                        self._named.setdefault(_name(whole), []).append(whole)
            return {self._shown(whole, run.folder): run for whole, run in self._runs.items()}

    def at(self, place: str) -> WatchedRun | None:
        """Return the run at a place, None where there is none, or where several have the name."""
        return self._found(place) or (self._found(place) if self.all() else None)

    def _found(self, place: str) -> WatchedRun | None:
        wholes = self._named.get(place, [place])
        run = self._runs.get(wholes[0])
        is_told = run is not None and place in (wholes[0], run.folder.name)
        return run if is_told and len(wholes) == 1 else None

    def _shown(self, whole: str, folder: Path) -> str:
        return place_of(folder) if len(self._named[_name(whole)]) == 1 else whole


def place_of(folder: Path) -> str:
    """Return the place of a run whose name no other has."""
    whole = _whole(folder)
    return folder.name if _name(whole) == folder.name else whole


def _whole(folder: Path) -> str:
    """Return the place of a run that no other has."""
    digest = hashlib.sha256(os.fsencode(folder)).hexdigest()[:8]
    return f"{_OTHER_SIGNS.sub('-', folder.name)[:80] or '-'}~{digest}"


def _name(whole: str) -> str:
    return whole.partition("~")[0]


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
