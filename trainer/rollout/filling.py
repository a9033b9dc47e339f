"""What a plan's rollouts came to: its batch, what was set aside, and the account of every token that was sampled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from agent_runtime.types import Trajectory
from trainer.config import TrainConfig
from trainer.data.ledger import FLAT_GROUP, TOO_OLD, add_left_out, add_step, slug
from trainer.rollout.filtering import rejection
from trainer.rollout.report import fault_metrics, sampled_tokens

__all__ = [
    "PlayedRollout",
    "Rollouts",
    "account",
    "filter_metrics",
    "newest_version",
    "rollout_metrics",
    "why_set_aside",
]


class PlayedRollout(NamedTuple):
    """One rollout, as it is stored and as it is read."""

    encoded: bytes
    trajectory: Trajectory


@dataclass(slots=True)
class Rollouts:
    """What a step's rollouts came to."""

    encoded: list[bytes] = field(default_factory=list)
    trajectories: list[Trajectory] = field(default_factory=list)
    """The batch: as many as were asked for; a rejected one without replacement is there as a placeholder."""
    rejected: list[PlayedRollout] = field(default_factory=list)
    """Rejected and sampled again."""
    flat: list[PlayedRollout] = field(default_factory=list)
    """Of groups without variance that were replaced, or drawn in vain."""
    too_old: list[PlayedRollout] = field(default_factory=list)
    """Of groups of which no token is within the lag any more."""
    flat_groups: int = 0
    """Groups without variance among all that were drawn."""
    extra_groups: int = 0
    """Groups drawn for that."""
    troubled_share: float = 0.0
    """Of the rollouts asked for: those that were rejected at least once."""
    tokens: int = 0
    """Sampled in all of them, counted as they came in."""
    duration_s: float = 0.0
    """Of playing them, without what judging them took."""
    reward_metrics: dict[str, float] = field(default_factory=dict)

    def speed(self) -> dict[str, float]:
        """Return how long they took, and turns and tokens a second."""
        turns = sum(len(t.turns) for t in self.played)
        return {
            "rollout_s": self.duration_s,
            "turns_per_s": turns / self.duration_s,
            "tokens_per_s": self.tokens / self.duration_s,
        }

    @property
    def set_aside(self) -> list[PlayedRollout]:
        """Return the rollouts that the learner does not see."""
        return [*self.rejected, *self.flat, *self.too_old]

    @property
    def seen(self) -> list[Trajectory]:
        """Return the rollouts that were not sampled again, in the batch or not: what the policy really did."""
        return [*self.trajectories, *(sample.trajectory for sample in [*self.flat, *self.too_old])]

    @property
    def played(self) -> list[Trajectory]:
        """Return every rollout that was played."""
        return [*self.seen, *(sample.trajectory for sample in self.rejected)]


def newest_version(trajectory: Trajectory) -> int | None:
    """Return the newest policy version that sampled a token of a rollout; None where none was sampled."""
    versions = (span.version for turn in trajectory.turns for span in turn.spans if span.tokens)
    return max(versions, default=None)


def why_set_aside(trajectory: Trajectory, config: TrainConfig, step: int) -> str:
    """Return why a rollout is not in the batch of a step that it was set aside in, as a reason for the token ledger."""
    if reason := rejection(trajectory, config.filter):
        return reason
    oldest, newest = config.rollout.oldest(step), newest_version(trajectory)
    return TOO_OLD if oldest is not None and newest is not None and newest < oldest else FLAT_GROUP


def account(
    totals: dict[str, int],
    learned: Mapping[str, float],
    rollouts: Rollouts,
    config: TrainConfig,
    step: int,
) -> dict[str, float]:
    """Add a step's tokens to the run's totals; return what the learner reported with what it did not see as dropped.

    Raise `LedgerError` where the learner's account is not of the batch, or both together not of what was played.
    """
    add_step(totals, learned, sampled=sampled_tokens(rollouts.trajectories))
    apart = [sample.trajectory for sample in rollouts.set_aside]
    reasons = [why_set_aside(trajectory, config, step) for trajectory in apart]
    tokens = [(reason, sampled_tokens([t])) for reason, t in zip(reasons, apart, strict=True)]
    return add_left_out(totals, learned, tokens, sampled=rollouts.tokens)


def rollout_metrics(rollouts: Rollouts, config: TrainConfig) -> dict[str, float]:
    """Return what a step's rollouts say beside `report.step_metrics`: faults, rejections, rewards and speed."""
    filtered = filter_metrics(rollouts, config)
    return {**fault_metrics(rollouts.played), **filtered, **rollouts.reward_metrics, **rollouts.speed()}


def filter_metrics(rollouts: Rollouts, config: TrainConfig) -> dict[str, float]:
    """Return what was rejected, sampled again and replaced, under the names of docs/metrics.md."""
    if not rollouts.trajectories:
        return {}
    reasons = [rejection(trajectory, config.filter) for trajectory in rollouts.played]
    rejected = [reason for reason in reasons if reason]
    found: dict[str, float] = {
        "filter/played": len(reasons),
        "filter/troubled_share": rollouts.troubled_share,
        "filter/placeholders": sum(bool(rejection(t, config.filter)) for t in rollouts.trajectories),
        "filter/flat_groups": rollouts.flat_groups,
        "filter/extra_groups": rollouts.extra_groups,
    }
    for reason in rejected:
        name = f"filter/rejected/{slug(reason)}"
        found[name] = found.get(name, 0) + 1
    for sample in rollouts.rejected:
        name = f"filter/resampled/{slug(rejection(sample.trajectory, config.filter))}"
        found[name] = found.get(name, 0) + 1
    return {name: float(value) for name, value in found.items()}
