"""Who says what a training rollout earned."""

from __future__ import annotations

from pydantic import Field, PositiveFloat, PositiveInt

from trainer.config.section import Scalar, Section

__all__ = ["RewardOptions", "RewardRoute"]


class RewardRoute(Section):
    """Which rollouts one reward worker rewards."""

    worker: str
    """An installed reward worker (`ale.rewards`)."""
    match: dict[str, str] = Field(default_factory=dict)
    """Patterns (`*`, `?`, `[abc]`) that all must fit: `env`, `split`, or a field of the task's payload where that is a JSON
    object, such as `family`. Empty fits every rollout."""
    turn_weight: float = Field(default=1.0, allow_inf_nan=False)
    """Factor on the worker's rewards per turn."""
    options: dict[str, Scalar] = Field(default_factory=dict)
    """The worker's own options (docs/rewards.md)."""


class RewardOptions(Section):
    """Reward workers: who says what a training rollout earned, where that is not its environment."""

    routes: tuple[RewardRoute, ...] = ()
    """Tables of `worker`, `match`, `turn_weight` and `options`: the first that fits a rollout rewards it (docs/rewards.md).
    A rollout that none fits keeps its environment's reward."""
    concurrency: PositiveInt = 16
    """Most batches open at once: of a judge or a sandbox one question, of a rule or a model in a run many."""
    attempts: PositiveInt = 4
    """Times a sample is put to its worker before it counts as failed, never as a reward of 0."""
    time_limit_s: PositiveFloat = 120.0
    """Longest one attempt may take."""
