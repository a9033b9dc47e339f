"""What a run reports: to whoever watches, to `metrics.jsonl`, to TensorBoard and other observers (`trainer.observers`).

Observers only look; the one thing they may say back is that somebody wants to stop.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec

from rock_env.foreign.files import open_regular
from rock_env.store.whole_file import write_whole
from trainer.files.appended import Appended, keep_lines
from trainer.files.folder import writing
from trainer.observers.base import HearsRecords, ObservedRun
from trainer.observers.tensorboard import TensorBoard

__all__ = [
    "METRICS",
    "Evaluation",
    "Interval",
    "MetricsLog",
    "Observer",
    "RunSummary",
    "read_summary",
    "share_of",
    "steps_recorded",
    "write_summary",
]

METRICS = "metrics.jsonl"


def share_of(success: float, optimum: float) -> float:
    """Return success as a share of what an optimal policy would have; NaN where nobody can succeed."""
    return success / optimum if optimum else math.nan


class Interval(NamedTuple):
    """The ends of a 95 % interval; NaN where nobody worked it out."""

    low: float = math.nan
    high: float = math.nan

    def metrics(self, name: str, of: str = "") -> dict[str, float]:
        """Return both ends under the names of docs/metrics.md."""
        return {f"{name}_low{of}": self.low, f"{name}_high{of}": self.high}


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Success on held-out tasks from the true start."""

    step: int
    success: float
    """Share of episodes passed; failed episodes (infrastructure) are excluded and counted apart."""
    optimum: float
    """Mean success probability of an optimal policy on the same tasks."""
    episodes: int
    failures: int
    apart: Mapping[str, float] = field(default_factory=dict)
    """Success on each split of `eval.apart`."""
    interval: Interval = field(default_factory=Interval)
    """Of the success: what it may be on all tasks of the split (`trainer.rollout.success`)."""
    apart_intervals: Mapping[str, Interval] = field(default_factory=dict)
    legal_share: float = math.nan
    """Share of the turns, all splits together, that were an action; NaN where there was no turn."""
    reward: float = math.nan
    """Mean reward of the episodes, and their mean number of turns; NaN where nobody counted."""
    turns: float = math.nan
    pass_at: Mapping[int, float] = field(default_factory=dict)
    """By k, the share of tasks that k sampled episodes pass at least once; empty where none were sampled."""
    pass_interval: Interval = field(default_factory=Interval)
    """Of k = 1."""
    counted: Mapping[str, float] = field(default_factory=dict)
    """What else the episodes of the split say, by its name in docs/metrics.md."""
    envs: Mapping[str, Evaluation] = field(default_factory=dict)
    """Of each environment, where the run has several."""

    @property
    def share(self) -> float:
        """Return success as a share of the optimum."""
        return share_of(self.success, self.optimum)

    def metrics(self) -> dict[str, float]:
        """Return the result under the names of docs/metrics.md, without what is NaN."""
        values = {
            "success": self.success,
            **self.interval.metrics("success"),
            "share_of_optimum": self.share,
            "optimum": self.optimum,
            "episodes": float(self.episodes),
            "failures": float(self.failures),
            "reward": self.reward,
            "turns": self.turns,
            "legal_share": self.legal_share,
            **self.counted,
            **{f"success/{split}": success for split, success in self.apart.items()},
            **{f"pass@{k}": value for k, value in self.pass_at.items()},
            **self.pass_interval.metrics("pass@1"),
        }
        for split, interval in self.apart_intervals.items():
            values |= interval.metrics("success", f"/{split}")
        for env, own in self.envs.items():
            values |= {f"env/{env}/{name}": value for name, value in own.metrics().items()}
        return {name: value for name, value in values.items() if not math.isnan(value)}


@dataclass(frozen=True, slots=True)
class RunSummary:
    """`summary.json` of a run folder."""

    env: str
    algo: str
    seed: int
    success_warmup: float
    success_final: float
    optimum: float
    """Mean success probability of an optimal policy on the held-out tasks."""
    share_warmup: float
    share_final: float
    train_s: float
    """Wall time from the first expert to the last evaluation, over all resumptions."""
    env_steps: int
    """Environment steps of training rollouts."""
    tokens: int
    """Tokens sampled in training rollouts."""
    steps: int
    apart_warmup: Mapping[str, float] = field(default_factory=dict)
    """Success after the warm-up on each split of `eval.apart`."""
    apart_final: Mapping[str, float] = field(default_factory=dict)
    envs_warmup: Mapping[str, float] = field(default_factory=dict)
    """Success after the warm-up in each environment, where the run has several."""
    envs_final: Mapping[str, float] = field(default_factory=dict)
    time_shares: Mapping[str, float] = field(default_factory=dict)
    """Shares of the machine's processor time: `policy`, `sandboxes`, `service`, `idle`; since the last resumption."""
    memory: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """By role, bytes of one process: `estimated`, and the most that one had (`taken`); since the last resumption.
    Of the learner also `tokens`, those of its largest forward and backward pass, with which it is estimated."""
    parent: str = ""
    """Folder of the run whose model this one began with; `lineage.json` says more."""
    model_digest: str = ""
    """Of the exported model's folder."""
    experts_digest: str = ""
    """Of all expert trajectories."""
    ledger: Mapping[str, int] = field(default_factory=dict)
    """What became of the tokens of all steps: `total` and its parts (docs/metrics.md)."""
    eval_warmup: Mapping[str, float] = field(default_factory=dict)
    """All that the evaluation after the warm-up said, and the last one, by its names in `metrics.jsonl`."""
    eval_final: Mapping[str, float] = field(default_factory=dict)


class Observer(Protocol):
    """Whoever watches a run (the command line's progress display, a test). See also `trainer.live.events.HearsEvents` and
    `trainer.observers.base.HearsRecords`."""

    @property
    def stop_requested(self) -> bool:
        """Return True to make the loop save and end at the next step boundary."""
        ...

    def on_phase(self, name: str) -> None: ...

    def on_step(self, step: int, total: int, metrics: Mapping[str, float]) -> None: ...

    def on_eval(self, evaluation: Evaluation) -> None: ...

    def on_log(self, message: str) -> None: ...


class MetricsLog:
    """`metrics.jsonl` (one object a line) and TensorBoard events, appended; cut back to a step on resume.

    Both are on the disk when `write` returns. Opening raises `OSError`, writing `RunFolderError`, closing nothing.
    """

    def __init__(
        self,
        folder: Path,
        *,
        resume_step: int | None,
        again: Collection[tuple[str, int]] = (),
        observer: object = None,
    ) -> None:
        """Open both. `resume_step` None starts the record anew, whatever an attempt before left.

        `again` are the (kind, step) of what is measured a second time although the step was finished. `observer` is told
        every record that is written if it hears them.
        """
        self._folder = folder
        path = folder / METRICS
        keep_lines(
            path,
            lambda record: (
                resume_step is not None
                and record["step"] <= resume_step
                and (record.get("kind"), record["step"]) not in again
            ),
        )
        self._file = Appended(path)
        self._tensorboard = TensorBoard()
        self._tensorboard.begin(ObservedRun("", folder.name, folder, {}, resume_step))
        self._hears = observer if isinstance(observer, HearsRecords) else None
        if self._hears is not None:
            self._hears.on_records(resume_step)

    def write(self, step: int, kind: str, metrics: Mapping[str, float]) -> None:
        """Append one record. `kind` is a section of docs/metrics.md and prefixes the TensorBoard tags."""
        line = json.dumps({"step": step, "kind": kind, **metrics}) + "\n"
        with writing("metrics", self._folder):
            self._file.write(line.encode())
            self._tensorboard.record(step, kind, metrics)
        if self._hears is not None:
            self._hears.on_record(step, kind, metrics)

    def close(self) -> None:
        """Close both files. Safe after a failed write: nothing is held back."""
        self._file.close()
        self._tensorboard.end("finished")


def steps_recorded(folder: Path) -> int:
    """Return the last step that `metrics.jsonl` of a run folder tells of; 0 where it tells of none."""
    path, last = folder / METRICS, 0
    for line in _content(path).splitlines() if path.exists() else []:
        with suppress(ValueError, RecursionError):  # the torn last line of a killed run
            record = json.loads(line)
            if isinstance(record, dict) and record.get("kind") == "train":
                last = max(last, int(record["step"]))
    return last


def read_summary(folder: Path) -> RunSummary | None:
    """Return what `write_summary` wrote; None where there is none, or none that can be read."""
    try:
        values = msgspec.json.decode(_content(folder / "summary.json"))
        numbers = {name: math.nan if value is None else value for name, value in values.items()}
        return msgspec.convert(numbers, RunSummary)
    except (OSError, AttributeError, ValueError, RecursionError, msgspec.DecodeError):
        return None


def _content(path: Path) -> bytes:
    with open_regular(path) as file:
        return file.read()


def write_summary(folder: Path, summary: RunSummary) -> None:
    """Write `summary.json` atomically. Raise `RunFolderError`.

    JSON has no NaN and no infinity: a number that is none is null, and left out where it is one of several by name.
    """
    values = {name: _finite(value) for name, value in asdict(summary).items()}
    with writing("summary.json", folder):
        content = json.dumps(values, indent=2, allow_nan=False).encode() + b"\n"
        write_whole(folder / "summary.json", lambda beside: beside.write_bytes(content))


def _finite(value: object) -> object:
    if isinstance(value, Mapping):
        found = {name: _finite(each) for name, each in value.items()}
        return {name: each for name, each in found.items() if each is not None}
    return None if isinstance(value, float) and not math.isfinite(value) else value
