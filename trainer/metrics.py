"""What a run reports: to whoever watches, to `metrics.jsonl`, to TensorBoard.

Called by the loop. Observers only look; the one thing they may say back is that somebody wants to stop.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary as EventSummary
from tensorboard.summary.writer.event_file_writer import EventFileWriter

__all__ = ["Evaluation", "MetricsLog", "Observer", "RunSummary"]


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

    @property
    def share(self) -> float:
        """Return success as a share of the optimum."""
        return self.success / self.optimum if self.optimum else float("nan")


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


class Observer(Protocol):
    """Whoever watches a run (the command line's progress display, a test)."""

    @property
    def stop_requested(self) -> bool:
        """Return True to make the loop save and end at the next step boundary."""
        ...

    def on_phase(self, name: str) -> None: ...

    def on_step(self, step: int, total: int, metrics: Mapping[str, float]) -> None: ...

    def on_eval(self, evaluation: Evaluation) -> None: ...

    def on_log(self, message: str) -> None: ...


class MetricsLog:
    """`metrics.jsonl` (one object a line) and TensorBoard events, appended; cut back to a step on resume."""

    def __init__(self, folder: Path, *, resume_step: int | None) -> None:
        self._path = folder / "metrics.jsonl"
        if resume_step is not None and self._path.exists():
            self._cut(resume_step)
        self._file = self._path.open("a", encoding="utf-8")
        (folder / "events").mkdir(exist_ok=True)
        self._events = EventFileWriter(str(folder / "events"))
        if resume_step is not None:
            self._events.add_event(
                Event(wall_time=time.time(), step=resume_step + 1, file_version="brain.Event:2")
            )

    def write(self, step: int, kind: str, metrics: Mapping[str, float]) -> None:
        """Append one record. `kind` is `warmup`, `train` or `eval` and prefixes the TensorBoard tags."""
        self._file.write(json.dumps({"step": step, "kind": kind, **metrics}) + "\n")
        self._file.flush()
        values = [
            EventSummary.Value(tag=f"{kind}/{name}", simple_value=value) for name, value in metrics.items()
        ]
        self._events.add_event(Event(wall_time=time.time(), step=step, summary=EventSummary(value=values)))

    def close(self) -> None:
        """Flush both files."""
        self._file.close()
        self._events.close()

    def _cut(self, step: int) -> None:
        kept = []
        for line in self._path.read_text(encoding="utf-8").splitlines():
            try:
                record = json.loads(line)
            except json.JSONDecodeError:
                break  # the torn last line of a killed run
            if record["step"] <= step:
                kept.append(line)
        temporary = self._path.with_suffix(".tmp")
        temporary.write_text("".join(line + "\n" for line in kept), encoding="utf-8")
        temporary.replace(self._path)


def write_summary(folder: Path, summary: RunSummary) -> None:
    """Write `summary.json` atomically."""
    temporary = folder / "summary.json.tmp"
    with temporary.open("w", encoding="utf-8") as file:
        json.dump(asdict(summary), file, indent=2)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(folder / "summary.json")
