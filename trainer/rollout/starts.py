"""Where a rollout may start: an expert, a turn of it, and perhaps a hint. Values, and what a rollout shares with an expert.

Used by the anchor pool, its schedules and the requests. Nothing here decides, samples or touches an environment.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from agent_runtime.types import PrefixTurn, Start, Trajectory

__all__ = ["Anchor", "Expert", "Injection", "Origin", "expert_from", "stood_at"]


class Origin(StrEnum):
    """Who acted in an expert's trajectory."""

    ORACLE = "oracle"
    """The environment's reference solution."""
    TEACHER = "teacher"
    """Another model, or this one in another run: the record holds what it sampled."""
    IMPORTED = "imported"
    """Somebody else, recorded before: nothing was sampled."""
    SELF = "self"
    """The policy that is being trained. The learner keeps no such trajectory, so it is never imitated."""


@dataclass(frozen=True, slots=True)
class Expert:
    """A successful trajectory reduced to what replay needs, and where it came from."""

    id: str
    task_id: str
    env_seed: int
    first_observation: str
    turns: tuple[PrefixTurn, ...]
    origin: Origin
    source: str = ""
    """`oracle of ENV@VERSION` or the file it was read from; empty for the policy's own."""
    step: int = 0
    """The training step that learned it first; 0 for what was there before."""


@dataclass(frozen=True, slots=True)
class Anchor:
    """Turn `turn` of an expert: turns before it are replayed, the policy plays from it on (0 is the true start)."""

    expert: Expert
    turn: int
    hint: int = 0
    """How many of the expert's next actions the policy is told."""

    def start(self, seed: int) -> Start:
        """Return where a rollout with `seed` starts; rollouts from one anchor differ in what follows only."""
        expert = self.expert
        told = [turn.action for turn in expert.turns[self.turn : self.turn + self.hint]]
        return Start(
            env_seed=expert.env_seed,
            first_observation=expert.first_observation,
            prefix=expert.turns[: self.turn],
            resume_seed=seed,
            source_id=expert.id,
            hint=f"Hint: {' | '.join(told)}" if told else "",
        )


@dataclass(frozen=True, slots=True)
class Injection:
    """Imitate what expert `trajectory_id` did at its environment steps `turns`, scaled by `weight`, beside RL in one step.

    What it said to itself before such a step, such as a summary, goes with it.
    """

    trajectory_id: str
    turns: tuple[int, ...]
    weight: float


def expert_from(trajectory: Trajectory, origin: Origin, source: str = "") -> Expert:
    """Reduce a successful trajectory that began at the task's true start, without a hint."""
    return Expert(
        id=trajectory.id,
        task_id=trajectory.task_id,
        env_seed=trajectory.start.env_seed,
        first_observation=trajectory.first_observation,
        turns=trajectory.played(),
        origin=origin,
        source=source,
        step=trajectory.policy_step if origin is Origin.SELF else 0,
    )


def stood_at(expert: Expert, trajectory: Trajectory) -> range:
    """Return the expert's turns at which a rollout of its task stood, with the same history, and went on by itself.

    The last of them is where it left the expert's way (or the expert's last turn). A state is the whole history before
    a turn (docs/ipa.md section 1), so the rollout's outcome is a sample of success from every one of them.
    """
    start = trajectory.start
    first = start.first_observation if start.prefix else trajectory.first_observation
    if first != expert.first_observation:
        return range(0)
    common = 0
    for mine, theirs in zip((*start.prefix, *trajectory.played()), expert.turns, strict=False):
        # Notes are the agent's, not the environment's: the same place is reached with and without them.
        if (mine.action, mine.observation) != (theirs.action, theirs.observation):
            break
        common += 1
    return range(start.anchor, min(common + 1, len(expert.turns)))
