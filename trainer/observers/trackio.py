"""trackio: a run of the project `TRACKIO_PROJECT` (`ale`), in a database of this user or where its variables say."""

from __future__ import annotations

import os
from collections.abc import Mapping

import trackio

from trainer.observers.base import ObservedRun, Outcome

__all__ = ["Trackio"]


class Trackio:
    """A run is known by its name there, so the name ends with a part of the run's id."""

    def begin(self, run: ObservedRun) -> None:
        self._run = trackio.init(
            project=os.environ.get("TRACKIO_PROJECT", "ale"),
            name=f"{run.name}-{run.id[:8]}",
            config=dict(run.settings),
            resume="allow",
            embed=False,
            auto_log_gpu=False,
            auto_log_cpu=False,
        )

    def record(self, step: int, kind: str, metrics: Mapping[str, float]) -> None:
        self._run.log({f"{kind}/{name}": value for name, value in metrics.items()}, step=step)

    def end(self, outcome: Outcome) -> None:
        self._run.finish()
