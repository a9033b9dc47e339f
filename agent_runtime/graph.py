"""The check of a record's invariants, those of the tree of its turns among them.

Pure; never changes a record.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from agent_runtime.errors import InvalidTrajectory
from agent_runtime.policy import version_fault
from agent_runtime.types import SCHEMA_VERSION, StopReason, Trajectory, Turn
from rock_env.env import observation_hash

__all__ = ["validate"]

LOGPROB_SLACK = 1e-3
"""A log-softmax in float32 (or bfloat16) may round a probability of 1 to slightly more."""


def validate(trajectory: Trajectory) -> None:
    """Check every invariant of the record. Raise `InvalidTrajectory` naming the first broken one."""
    for problem in _problems(trajectory):
        raise InvalidTrajectory(f"trajectory {trajectory.id!r} is invalid: {problem}")


def _problems(trajectory: Trajectory) -> Iterator[str]:
    turns = trajectory.turns
    if not 1 <= trajectory.schema_version <= SCHEMA_VERSION:
        yield f"schema_version is {trajectory.schema_version}, expected 1 to {SCHEMA_VERSION}"
    for name in ("actions", "observations", "observation_hashes", "turn_rewards"):
        if len(getattr(trajectory, name)) != len(turns):
            yield f"{name} has {len(getattr(trajectory, name))} entries, expected one per turn ({len(turns)})"
    if trajectory.turn_labels and len(trajectory.turn_labels) != len(turns):
        yield f"turn_labels has {len(trajectory.turn_labels)} entries, expected none or one per turn ({len(turns)})"
    internal = trajectory.internal_turns
    if list(internal) != sorted(set(internal) & set(range(len(turns)))):
        yield f"internal_turns is {internal}, expected rising indices of its {len(turns)} turns"
    for position, turn in enumerate(turns):
        yield from (f"turn {position}: {problem}" for problem in _turn_problems(turn, position))
    if len({turn.finish_reason == "expert" for turn in turns}) > 1:
        yield "expert turns and sampled turns are mixed, expected one kind"
    hashes = zip(trajectory.observations, trajectory.observation_hashes, strict=True)
    for position, (observation, recorded) in enumerate(hashes):
        if observation_hash(observation) != recorded:
            yield f"turn {position}: observation_hash is {recorded.hex()}, expected the observation's own"
    paid = [turn for turn in internal if trajectory.env_turn_rewards[turn]]
    if paid:
        yield f"the internal turns {paid} have rewards of the environment, which never heard of them"
    if not 0 <= trajectory.illegal_actions <= len(turns):
        yield f"illegal_actions is {trajectory.illegal_actions}, expected 0 to {len(turns)}"
    yield from _outcome_problems(trajectory)


def _turn_problems(turn: Turn, position: int) -> Iterator[str]:
    if turn.index != position:
        yield f"index is {turn.index}, expected its position"
    if turn.parent is not None and not 0 <= turn.parent < position:
        yield f"parent is {turn.parent}, expected None or an earlier turn"
    for name, dtype in (("context_ids", np.int32), ("completion_ids", np.int32), ("logprobs", np.float32)):
        array = getattr(turn, name)
        if array.dtype != dtype or array.ndim != 1:
            yield f"{name} is {array.dtype} of rank {array.ndim}, expected {np.dtype(dtype)} of rank 1"
    if len(turn.logprobs) != len(turn.completion_ids):
        yield f"{len(turn.logprobs)} logprobs for {len(turn.completion_ids)} completion tokens, expected one each"
    if turn.finish_reason not in ("stop", "length", "expert"):
        yield f"finish_reason is {turn.finish_reason!r}, expected 'stop', 'length' or 'expert'"
    if fault := version_fault(turn.policy_version, len(turn.completion_ids)):
        yield fault
    elif (turn.finish_reason == "expert") != (turn.oldest_version < 0):
        yield f"policy_version is {turn.policy_version} with finish_reason {turn.finish_reason!r}"
    if turn.finish_reason == "expert":
        if not np.isnan(turn.logprobs).all():
            yield "an expert's logprobs are not all NaN, but nobody sampled them"
    elif not (np.isfinite(turn.logprobs).all() and (turn.logprobs <= LOGPROB_SLACK).all()):
        yield f"logprobs are not all finite and <= 0: {turn.logprobs!r}"


def _outcome_problems(trajectory: Trajectory) -> Iterator[str]:
    failed = trajectory.failure is not None
    if failed != (trajectory.stop_reason is StopReason.FAILED):
        yield f"stop_reason is {trajectory.stop_reason!r} with failure {trajectory.failure!r}"
    if trajectory.has_reward == math.isnan(trajectory.reward):
        yield f"reward is {trajectory.reward!r} with failure {trajectory.failure!r}; NaN means failed"
    if failed and trajectory.passed:
        yield "passed is True although the rollout failed"
