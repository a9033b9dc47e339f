"""What is told of a run's metrics, and to whom: the protocol of an observer.

An observer is a class, the value of an entry point of the group `ale.observers`. TensorBoard is told by `trainer.metrics`;
the others, which `ale train --observe NAME` chooses, each in a process of its own (`trainer.observers.process`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, runtime_checkable

__all__ = ["GROUP", "HearsRecords", "ObservedRun", "Outcome", "RunObserver"]

GROUP = "ale.observers"
Outcome = Literal["finished", "stopped", "failed"]


@dataclass(frozen=True, slots=True)
class ObservedRun:
    """The run that begins, or goes on."""

    id: str
    """32 hexadecimal digits; the same after a resumption in the same folder."""
    name: str
    """Of its folder, without the path."""
    folder: Path
    settings: Mapping[str, str | int | float | bool]
    """By dotted name: numbers, switches, choices among names, and `env`, `algo` and `model`. No other text, which may hold
    a secret."""
    resume_step: int | None
    """The records of later steps are told again; None: the record begins."""


class RunObserver(Protocol):
    """Whoever keeps or shows what a run measures. Made without arguments; what it raises is said and ends no run."""

    def begin(self, run: ObservedRun) -> None:
        """Take that a run begins or goes on."""
        ...

    def record(self, step: int, kind: str, metrics: Mapping[str, float]) -> None:
        """Take a record as it stands in `metrics.jsonl`; a number may be NaN, a step negative (the warm-up's)."""
        ...

    def end(self, outcome: Outcome) -> None:
        """Take that nothing more comes; bring to its place what is still held back."""
        ...


@runtime_checkable
class HearsRecords(Protocol):
    """A `trainer.metrics.Observer` that wants every record of `metrics.jsonl`."""

    def on_records(self, resume_step: int | None) -> None:
        """Take that the file begins (None), or goes on after a step."""
        ...

    def on_record(self, step: int, kind: str, metrics: Mapping[str, float]) -> None:
        """Take a record that was written. The run waits for the return."""
        ...
