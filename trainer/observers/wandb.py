"""Weights & Biases: a run of the project `WANDB_PROJECT` (`ale`). Without a network: `WANDB_MODE=offline`.

Its own variables say where to and as whom. It is told numbers and settings, and looks at nothing by itself: neither the
repository nor the command, the packages, the machine or what the run prints.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

import wandb

from trainer.observers.base import ObservedRun, Outcome

__all__ = ["Wandb"]

_TOLD_NUMBERS_ONLY = wandb.Settings(
    console="off",
    disable_code=True,
    disable_git=True,
    disable_job_creation=True,
    x_disable_machine_info=True,
    x_disable_meta=True,
    x_disable_stats=True,
    x_save_requirements=False,
)


class Wandb:
    """Records of a kind have a step of their own, `KIND/step`: Weights & Biases would drop one that is not larger."""

    def begin(self, run: ObservedRun) -> None:
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        self._kinds: set[str] = set()
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "ale"),
            id=run.id,
            name=run.name,
            config=dict(run.settings),
            dir=os.environ.get("WANDB_DIR", run.folder),
            resume="allow",
            settings=_TOLD_NUMBERS_ONLY,
        )

    def record(self, step: int, kind: str, metrics: Mapping[str, float]) -> None:
        if kind not in self._kinds:
            self._run.define_metric(f"{kind}/*", step_metric=f"{kind}/step")
            self._kinds.add(kind)
        self._run.log({f"{kind}/step": step, **{f"{kind}/{name}": value for name, value in metrics.items()}})

    def end(self, outcome: Outcome) -> None:
        self._run.finish(exit_code=0 if outcome == "finished" else 1)
