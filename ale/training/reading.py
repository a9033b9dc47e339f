"""Run folders as records: a run's settings, and what its steps and evaluations came to.

The one reader for all that shows runs: tables, plots, pages. It reads `config.toml` and `metrics.jsonl` and nothing else, so
a run can be read while it goes on, and where the code of its environment is gone.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from ale.errors import RecordError
from ale.option_names import flat
from ale.training import runs
from rock_env.errors import InvalidArgument
from rock_env.foreign import budget
from trainer.errors import RunFolderError

__all__ = ["METRICS", "Measured", "RunRecord", "number_of", "read_metrics", "read_run", "records_of"]


METRICS = "metrics.jsonl"  # `trainer.metrics` brings TensorBoard


class Measured(NamedTuple):
    """One evaluation; what its record lacks is NaN."""

    step: int
    success: float
    """Share of held-out tasks that were passed."""
    success_low: float
    success_high: float
    """The ends of its 95 % interval."""
    env_steps: float
    """Turns of training rollouts before it."""
    train_s: float
    """Seconds of the run before it ended."""


@dataclass(frozen=True)
class RunRecord:
    """What is on record of a run."""

    folder: Path
    settings: Mapping[str, Any]
    """Of its `config.toml`, by dotted name."""
    metrics: Sequence[Mapping[str, Any]]
    """The records of `metrics.jsonl`; none where the run has not begun to learn."""

    @property
    def seed(self) -> int | None:
        """Return the run's seed; None where its settings have none."""
        return self.settings.get("seed")

    @property
    def steps_wanted(self) -> int:
        """Return how many steps the run is to have."""
        return int(self.settings.get("steps", 0))

    @cached_property
    def steps(self) -> int:
        """Return how many steps were learned."""
        return max((record["step"] for record in self.metrics if record["kind"] == "train"), default=0)

    @cached_property
    def curve(self) -> list[Measured]:
        """Return the evaluations in their order: the first is the one after the warm-up."""
        names = Measured._fields[1:]
        return [
            Measured(record["step"], *(_number(record, name) for name in names))
            for record in self.metrics
            if record["kind"] == "eval"
        ]

    @property
    def env_steps(self) -> float:
        """Return the turns of all training rollouts; NaN where none is told of."""
        return self._latest("env_steps")

    @property
    def train_s(self) -> float:
        """Return the seconds from the first expert to the newest record, over all resumptions; NaN where none is told of."""
        return self._latest("train_s")

    def _latest(self, name: str) -> float:
        told = (_number(record, name) for record in reversed(self.metrics))
        return next((value for value in told if not math.isnan(value)), math.nan)


def read_run(folder: Path, metrics: Sequence[Mapping[str, Any]] | None = None) -> RunRecord:
    """Return what is on record of the run in a folder, with the metrics that are given where somebody has read them.

    Raise `RunFolderError` where there is no run, `RecordError` or `InvalidArgument` where its files cannot be read.
    """
    path = folder / runs.CONFIG
    if not path.is_file():
        raise RunFolderError(f"no run in {folder}: it holds no {runs.CONFIG}.{runs.others(folder.name)}")
    try:
        settings = flat(budget.read_settings(path))
    except OSError as error:
        raise RecordError(f"cannot read {path}: {error}") from error
    for name in ("seed", "steps"):
        if type(settings.get(name, 0)) is not int:
            raise RecordError(f"{path} has {name} = {settings[name]!r}, expected a whole number. Restore it.")
    if metrics is None:
        metrics = read_metrics(folder) if (folder / METRICS).exists() else []
    return RunRecord(folder, settings, metrics)


def read_metrics(run_folder: Path) -> list[dict[str, Any]]:
    """Return the records of `metrics.jsonl`; the torn last line of a killed run is left out.

    Raise `RecordError` when the file is missing or malformed before its last line.
    """
    path = run_folder / METRICS
    try:
        content = budget.read_whole(path, str(path))
    except (OSError, InvalidArgument) as error:
        raise RecordError(f"cannot read {path}: {error}") from error
    return list(records_of(content, path))


def records_of(content: bytes, path: Path, first_line: int = 1) -> Iterator[dict[str, Any]]:
    """Yield the records of whole lines of `metrics.jsonl`, or of its end from a line on; a torn last line is left out.

    Raise `RecordError` at a line that is malformed.
    """
    try:
        lines = content.decode().splitlines()
    except UnicodeDecodeError as error:
        raise RecordError(f"cannot read {path}: {error}") from error
    for number, line in enumerate(lines, start=first_line):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            if number < first_line + len(lines) - 1:
                raise RecordError(f"{path} line {number} is not JSON: {error}") from error
            return
        if not isinstance(record, dict) or type(record.get("step")) is not int or "kind" not in record:
            raise RecordError(f"{path} line {number} is no record: expected an object with a step and a kind")
        yield record


def number_of(value: Any) -> float:
    """Return a recorded value as a number; NaN for what is none, or none that a float holds."""
    try:
        return float(value) if isinstance(value, int | float) else math.nan
    except OverflowError:
        return math.nan


def _number(record: Mapping[str, Any], name: str) -> float:
    return number_of(record.get(name))
