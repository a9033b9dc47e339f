"""What a run knows between two steps."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from agent_runtime.store import kept_segment
from rock_env.foreign.files import read_text
from trainer import checkpoint
from trainer.checkpoint import Resumed
from trainer.config import CheckpointOptions, TrainConfig
from trainer.files.digests import Digest, listed
from trainer.lineage import CONFIG, Lineage
from trainer.metrics import Evaluation, RunSummary, share_of, steps_recorded
from trainer.rollout.curriculum import PassRates
from trainer.rollout.experts import HELD_OUT
from trainer.scheduler.groups import OpenGroup, StreamState
from trainer.teaching import Signal

__all__ = ["RunState", "SavedStates", "summary_of"]


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
    signal: Signal = msgspec.field(default_factory=Signal)
    stream: StreamState | None = None
    """What was drawn and not learned, with `rollout.mode=stream`."""

    @property
    def open_groups(self) -> list[OpenGroup]:
        """Return the groups that were drawn and not learned."""
        return self.stream.open if self.stream else []

    def rates(self, envs: Sequence[str]) -> dict[str, PassRates]:
        """Return the pass rates of each of the run's environments, to be kept up to date in place."""
        if len(envs) == 1:
            return {envs[0]: self.pass_rates}
        return {env: self.mixed_pass_rates.setdefault(env, {}) for env in envs}


class SavedStates:
    """The checkpoints of a run, and what of its folder is checked with them: settings and experts."""

    def __init__(self, folder: Path) -> None:
        """Read the settings as they are now. Raise `OSError`."""
        config = folder / CONFIG
        self._folder = folder
        self._settings = read_text(config) if config.is_file() else ""
        self._beside: dict[str, Digest] | None = None

    def newest(self) -> Resumed | None:
        """Return the newest whole checkpoint, None before the first. Raise as `checkpoint.to_resume` does."""
        return checkpoint.to_resume(
            self._folder / "checkpoints", RunState, steps_done=steps_recorded(self._folder)
        )

    def begin(
        self,
        step: int,
        state: RunState,
        *,
        engine: Callable[[Path], Callable[[], object]],
        options: CheckpointOptions,
    ) -> Callable[[], Path]:
        """Begin a checkpoint as `checkpoint.begin` does, and return what writes it. Raise `OSError`, here or there."""
        if self._beside is None:
            experts = [kept_segment(self._folder, kind) for kind in ("expert", HELD_OUT)]
            self._beside = listed(self._folder, experts)
        return checkpoint.begin(
            self._folder / "checkpoints",
            step,
            state,
            engine=engine,
            keep=options.keep,
            history_bytes=options.history_bytes,
            settings=self._settings,
            beside=self._beside,
        )


def summary_of(
    config: TrainConfig,
    state: RunState,
    story: Lineage,
    final: Evaluation,
    said: dict[str, float],
    *,
    train_s: float,
    time_shares: dict[str, float],
    memory: dict[str, dict[str, int]],
) -> RunSummary:
    """Return what a run that has ended came to; `said` are all numbers of its last evaluation, `final`."""
    return RunSummary(
        env=config.env,
        algo=config.algo,
        seed=config.seed,
        success_warmup=state.success_warmup,
        success_final=final.success,
        optimum=final.optimum,
        share_warmup=share_of(state.success_warmup, final.optimum),
        share_final=final.share,
        train_s=train_s,
        env_steps=state.env_steps,
        tokens=state.tokens,
        steps=state.step,
        apart_warmup=state.apart_warmup,
        apart_final=final.apart,
        envs_warmup=state.envs_warmup,
        envs_final={env: own.success for env, own in final.envs.items()},
        time_shares=time_shares,
        memory=memory,
        parent=story.parent.run if story.parent else "",
        model_digest=story.final_digest,
        experts_digest=story.experts_digest,
        ledger=state.ledger,
        eval_warmup=state.eval_warmup,
        eval_final=said,
    )
