"""A rollout that somebody else recorded: texts, perhaps tokens, and mostly no reward."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from agent_runtime.types import RolloutFailure, Start, StopReason, Trajectory, Turn
from rock_env.env import observation_hash

__all__ = ["Outcome", "imported", "silent_turns"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What somebody said a rollout was worth."""

    reward: float
    passed: bool


def silent_turns(count: int) -> tuple[Turn, ...]:
    """Return turns of which no token is known."""
    none, no_logprob = np.zeros(0, np.int32), np.zeros(0, np.float32)
    return tuple(
        Turn(index, index - 1 if index else None, none, none, no_logprob, "stop", -1)
        for index in range(count)
    )


def imported(
    name: str,
    *,
    env: str,
    task: str,
    group: str,
    first_observation: str,
    actions: Sequence[str],
    observations: Sequence[str],
    turns: Sequence[Turn],
    outcome: Outcome | None = None,
) -> Trajectory:
    """Return the record. Without an outcome it counts as failed, so that nobody learns from a reward that nobody gave."""
    failure = None if outcome else RolloutFailure("imported", "the record holds no reward", len(turns))
    return Trajectory(
        id=name,
        env=env,
        params_json="{}",
        task_id=task,
        group_id=group,
        index=0,
        seed=0,
        start=Start(env_seed=0),
        first_observation=first_observation,
        turns=tuple(turns),
        actions=tuple(actions),
        observations=tuple(observations),
        observation_hashes=tuple(map(observation_hash, observations)),
        turn_rewards=(0.0,) * len(turns),
        illegal_actions=0,
        reward=outcome.reward if outcome else math.nan,
        passed=bool(outcome and outcome.passed),
        stop_reason=StopReason.TERMINATED if outcome else StopReason.FAILED,
        failure=failure,
    )
