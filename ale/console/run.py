"""One run as the console keeps it: rows of its rollouts and columns of its metrics, read on as its files grow.

Rollouts themselves are read when somebody looks at one and are not kept, so memory goes with their number, not their size.
The rows are those of `ale replay list` (`ale.replay.rows`), the metrics those of `ale compare` (`ale.training.reading`).
"""

from __future__ import annotations

import copy
import math
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import Any

from agent_runtime.errors import StoreError
from agent_runtime.store import FOLDER
from ale.console.signs import IS_TIME, between, signs
from ale.errors import RecordError
from ale.replay.places import segments
from ale.replay.rows import Row, rows_of_file
from ale.training import runs
from ale.training.reading import METRICS, RunRecord, number_of, read_run, records_of
from rock_env.errors import RockError
from rock_env.foreign.files import open_regular
from trainer.errors import TrainerError

__all__ = ["UNREADABLE", "Columns", "Rows", "WatchedRun", "finite", "parting"]

UNREADABLE = (RecordError, RockError, StoreError, TrainerError, OSError)
"""What a run that is damaged, half written or gone raises: it is shown as what it is."""
_PIECE = 4 << 20
"""Bytes of metrics that are read at a time, and the longest line."""
_MOST_STEP = 1 << 62
_MOST_KINDS, _MOST_LEFT_OUT = 64, 1000
_MOST_NAMES = 2000
"""Of one kind: each is a column as long as the run."""
_MOST_NUMBERS = 1 << 25
"""Of all columns of a run, those of steps that lack them included: 256 MiB. A run of 10,000 steps has about a million."""
_MOST_PROBLEMS = 20


@dataclass(slots=True)
class Columns:
    """The records of one kind, a column for each number; NaN where a record has none."""

    steps: array[int] = field(default_factory=lambda: array("q"))
    values: dict[str, array[float]] = field(default_factory=dict)

    def add(self, record: Mapping[str, Any]) -> None:
        """Add a record's numbers. One step stands once: the record of an evaluation that was made again takes its place."""
        if self.steps and self.steps[-1] == record["step"]:
            at = len(self.steps) - 1
        else:
            at = len(self.steps)
            self.steps.append(record["step"])
            for column in self.values.values():
                column.append(math.nan)
        for name, value in record.items():
            if name not in self.values and len(self.values) >= _MOST_NAMES:
                continue
            if type(value) in (int, float) and name != "step":
                column = self.values.setdefault(name, array("d"))
                column.extend([math.nan] * (at + 1 - len(column)))
                column[at] = number_of(value)

    def size(self, record: Mapping[str, Any] | None = None) -> int:
        """Return how many numbers the columns hold, or would with a record."""
        if record is None:
            return len(self.steps) * len(self.values)
        return (len(self.steps) + 1) * min(_MOST_NAMES, len(self.values.keys() | record.keys()))

    def series(self, names: Sequence[str], points: int) -> dict[str, Any]:
        """Return steps and columns, of many steps every so many, the newest always; a number that is none is None."""
        count = len(self.steps)
        picked = range(count - 1, -1, -max(1, -(-count // points)))[::-1]
        values = {
            name: [finite(self.values[name][at]) for at in picked] for name in names if name in self.values
        }
        return {"step": [self.steps[at] for at in picked], "values": values}


def parting(one: Columns, other: Columns) -> tuple[int, str] | None:
    """Return the first step at which two runs measured something else, and the first such number; None where they did not.

    Times and what follows from them are no difference: no two runs have the same.
    """
    names = [name for name in one.values if name in other.values and not IS_TIME.search(name)]
    for at, (step, also) in enumerate(zip(one.steps, other.steps, strict=False)):
        if step != also:
            return min(step, also), "step"
        for name in names:
            mine, theirs = one.values[name][at], other.values[name][at]
            if mine != theirs and not (math.isnan(mine) and math.isnan(theirs)):
                return step, name
    return None


def finite(value: float) -> float | None:
    """Return a number as JSON takes it: None for one that is none."""
    return value if math.isfinite(value) else None


class Metrics:
    """`metrics.jsonl`, of which every byte is read once; a file that was cut back or replaced is read again."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / METRICS
        self._forget()

    def _forget(self) -> None:
        self.columns: dict[str, Columns] = {}
        self.left_out: set[int] = set()
        """Hashes of the kinds beyond `_MOST_KINDS`, no more than `_MOST_LEFT_OUT`."""
        self._evals: list[dict[str, Any]] = []
        self._newest: dict[str, dict[str, Any]] = {}
        self._file, self._read, self._line = 0, 0, 1
        self.problem = ""

    @property
    def told(self) -> list[dict[str, Any]]:
        """Return evaluations, and the newest record of each other kind: what `RunRecord` reads."""
        return [*self._newest.values(), *self._evals]

    def refresh(self) -> None:
        """Read on. Raise what `UNREADABLE` lists."""
        if not self._path.exists():
            self._forget()
            return
        with open_regular(self._path) as file:
            status = self._path.stat()
            if status.st_ino != self._file or status.st_size < self._read:
                self._forget()
                self._file = status.st_ino
            file.seek(self._read)
            while piece := file.read(_PIECE):
                whole = piece[: piece.rfind(b"\n") + 1]
                if not whole and len(piece) == _PIECE:
                    raise RecordError(
                        f"{self._path} line {self._line} is longer than {_PIECE} bytes. Restore the file."
                    )
                if not whole:
                    return  # a line that is being written
                self._take(whole)
                file.seek(self._read)

    def _take(self, whole: bytes) -> None:
        """Take whole lines. One that is malformed is told as a problem, and what follows it is read."""
        for line in whole.splitlines(keepends=True):
            try:
                # With a line more it is no torn last one: what is malformed is told.
                for record in records_of(line + b"\n", self._path, self._line):
                    self._add(record)
            except RecordError as error:
                self.problem = self.problem or str(error)
            self._read += len(line)
            self._line += 1

    def _add(self, record: dict[str, Any]) -> None:
        if abs(record["step"]) > _MOST_STEP or not isinstance(record["kind"], str):
            raise RecordError(
                f"{self._path} line {self._line} has no step or kind of a run. Restore the file."
            )
        kind = record["kind"]
        if kind not in self.columns and len(self.columns) >= _MOST_KINDS:
            if len(self.left_out) < _MOST_LEFT_OUT:
                self.left_out.add(hash(kind))
            return
        columns = self.columns.setdefault(kind, Columns())
        others = sum(each.size() for each in self.columns.values() if each is not columns)
        if others + columns.size(record) > _MOST_NUMBERS:
            raise RecordError(
                f"{self._path} line {self._line}: the console keeps {_MOST_NUMBERS:,} numbers of a run, and with this "
                "record it would be more. It is left out; `ale compare` reads it."
            )
        columns.add(record)
        if kind == "eval":
            self._evals.append(record)
        else:
            self._newest[kind] = record


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of a run's rollouts in the order of `ale replay list`, as they were at one moment."""

    all: Sequence[tuple[Path, Row]] = ()
    problems: Sequence[str] = ()
    left: int = 0
    """Files that were still to be read."""

    def find(self, identity: str) -> int | None:
        """Return the place of the first rollout with this id, None where there is none."""
        return next((at for at, (_, row) in enumerate(self.all) if row.id == identity), None)


class _Files:
    """The files of a run's rollouts. One is read when it comes and when it changes."""

    def __init__(self, where: Path) -> None:
        self._where = where
        self._files: dict[Path, tuple[tuple[int, int, int], list[Row], list[str]]] = {}
        self.rows = Rows()

    def refresh(self, patience_s: float) -> Rows:
        """Read what is new, for a while: `left` says how many files are to be read yet. Raise nothing."""
        until_s, changed, left = monotonic() + patience_s, False, 0
        try:
            paths = segments(str(self._where))
        except UNREADABLE:
            paths = []
        for gone in self._files.keys() - set(paths):
            del self._files[gone]
            changed = True
        for path in paths:
            if (state := _state(path)) is None or (path in self._files and self._files[path][0] == state):
                continue
            if monotonic() > until_s:
                left += 1
                continue
            found, problems = _rows(path)
            self._files[path] = (state, found, problems)
            changed = True
        if changed:
            kept = [(path, self._files[path]) for path in paths if path in self._files]
            told = [each for _, (_, _, problems) in kept for each in problems]
            self.rows = Rows([(path, row) for path, (_, rows, _) in kept for row in rows], told, left)
        else:
            self.rows = replace(self.rows, left=left)
        return self.rows


def _state(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def _rows(path: Path) -> tuple[list[Row], list[str]]:
    try:
        found, problems = rows_of_file(path)
    except UNREADABLE as error:
        return [], [str(error)]
    return found, [str(each) for each in problems[:_MOST_PROBLEMS]]


class WatchedRun:
    """A run folder, or a folder of rollouts. Every method may be called from any thread."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._files, self._metrics = _Files(folder), Metrics(folder)
        self._files_lock, self._lock = Lock(), Lock()
        self._settings: tuple[object, Mapping[str, Any]] = (None, {})
        """What `config.toml` held, and the state of the file then."""

    def rows(self, patience_s: float = 0.4) -> Rows:
        """Return the rows as they are now."""
        with self._files_lock:
            return self._files.refresh(patience_s)

    def metrics(self, names: Sequence[str], points: int) -> dict[str, Any]:
        """Return the columns of these names by kind, the names that there are, how many kinds more, and what is wrong."""
        with self._lock:
            problem = self._refreshed()
            found = {kind: each for kind, each in self._metrics.columns.items() if kind.isprintable()}
            series = {kind: columns.series(names, points) for kind, columns in found.items()}
            known = {kind: sorted(filter(str.isprintable, columns.values)) for kind, columns in found.items()}
            more = len(self._metrics.left_out)
            return {"series": series, "names": known, "left_out": more, "problem": problem}

    def signs(self) -> dict[str, Any]:
        """Return what is wrong with the newest steps; see `signs`."""
        with self._lock:
            return signs(self._metrics.columns.get("train", Columns()).values)

    def between(self, first: int | None, last: int | None) -> dict[str, Any]:
        """Return what differs between two steps of training; see `between`."""
        with self._lock:
            self._refreshed()
            train = self._metrics.columns.get("train", Columns())
            return between(train.steps, train.values, first, last)

    def parting(self, other: WatchedRun) -> tuple[int, str] | None:
        """Return where the training of two runs parts; see `parting`."""
        with self._lock:
            self._refreshed()
            mine = copy.deepcopy(self._metrics.columns.get("train", Columns()))
        with other._lock:
            other._refreshed()
            return parting(mine, other._metrics.columns.get("train", Columns()))

    def record(self) -> tuple[RunRecord, str]:
        """Return what `ale compare` reads of a run, and what is wrong with it ("" if nothing is)."""
        with self._lock:
            problem = self._refreshed()
            state, settings = self._settings
            try:
                if (now := _state(self.folder / runs.CONFIG)) != state:
                    settings = read_run(self.folder, metrics=()).settings if now else {}
                    self._settings = now, settings
            except UNREADABLE as error:
                problem = problem or str(error)
            if not self.folder.is_dir():
                problem = f"{self.folder} is gone"
            return RunRecord(self.folder, settings, self._metrics.told), problem

    def _refreshed(self) -> str:
        try:
            self._metrics.refresh()
        except UNREADABLE as error:
            return str(error)
        return self._metrics.problem

    def stamp(self) -> tuple[object, ...]:
        """Return what changes whenever there is something new to show: three looks at folders, nothing is read."""
        watched = (self.folder / METRICS, self.folder / FOLDER, self.folder, *self._newest())
        return tuple(map(_state, watched))

    def _newest(self) -> Iterator[Path]:
        """Yield the file of rollouts that may be growing, of a run of an earlier version."""
        if known := self._files.rows.all:
            yield known[-1][0]
