"""An observer in front of another one: what stands between a run and its progress display."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from trainer.live.events import RunEvent, hear

if TYPE_CHECKING:
    from trainer.metrics import Evaluation, Observer

__all__ = ["PassesOn"]


class PassesOn:
    """Passes everything on; a subclass does something beside it."""

    def __init__(self, to: Observer) -> None:
        self._to = to

    @property
    def stop_requested(self) -> bool:
        return self._to.stop_requested

    def on_phase(self, name: str) -> None:
        self._to.on_phase(name)

    def on_step(self, step: int, total: int, metrics: Mapping[str, float]) -> None:
        self._to.on_step(step, total, metrics)

    def on_eval(self, evaluation: Evaluation) -> None:
        self._to.on_eval(evaluation)

    def on_log(self, message: str) -> None:
        self._to.on_log(message)

    def on_event(self, event: RunEvent) -> None:
        hear(self._to, event)
