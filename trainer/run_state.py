"""What a run knows between two steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from trainer import checkpoint
from trainer.metrics import steps_recorded
from trainer.rollout.curriculum import PassRates

__all__ = ["RunState", "saved_state"]


class RunState(msgspec.Struct):
    """What a checkpoint holds beside the engine's part."""

    step: int = 0
    env_steps: int = 0
    tokens: int = 0
    train_s: float = 0.0
    success_warmup: float = math.nan
    apart_warmup: dict[str, float] = {}
    envs_warmup: dict[str, float] = {}
    eval_warmup: dict[str, float] = {}
    """All that the evaluation after the warm-up said."""
    anchors: dict[str, Any] = {}
    ledger: dict[str, int] = {}
    pass_rates: PassRates = {}
    mixed_pass_rates: dict[str, PassRates] = {}
    """By environment, where there are several."""
    empty_steps: int = 0
    references: dict[str, float] = {}
    """What the guard measured first."""
    epochs_left: int = 0
    """Of the warm-up; none once step 0 is reached."""
    start_success: float = math.nan
    """Of the last step's rollouts from the start."""

    def rates(self, envs: Sequence[str]) -> dict[str, PassRates]:
        """Return the pass rates of each of the run's environments, to be kept up to date in place."""
        if len(envs) == 1:
            return {envs[0]: self.pass_rates}
        return {env: self.mixed_pass_rates.setdefault(env, {}) for env in envs}


def saved_state(folder: Path) -> tuple[Path, RunState] | None:
    """Return the newest checkpoint and what it holds, None before the first. Raise `CheckpointError` for a damaged one."""
    return checkpoint.to_resume(folder / "checkpoints", RunState, steps_done=steps_recorded(folder))
