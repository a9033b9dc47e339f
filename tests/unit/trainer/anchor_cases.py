"""Experts, rollouts and steps in the small, for the tests of where rollouts start."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from agent_runtime.types import PrefixTurn, RolloutFailure, Start, StopReason, Trajectory, Turn
from trainer.rollout.anchors import Anchor, AnchorPool, Expert, Origin


def expert(name: str, turns: int = 5, *, origin: Origin = Origin.ORACLE, task: str = "train/1") -> Expert:
    """Return an expert that does a0, a1, ... and sees o1, o2, ... after o0."""
    pairs = tuple(PrefixTurn(f"a{i}", f"o{i + 1}") for i in range(turns))
    return Expert(name, task, 7, "o0", pairs, origin)


def played(
    actions: Sequence[str],
    *,
    passed: bool,
    start: Start | None = None,
    name: str = "r",
    group: str = "g",
    task: str = "train/1",
    failure: str = "",
) -> Trajectory:
    """Return a rollout in the world of `expert`: every action leads on, whatever it is, and is seen as the next o."""
    start = start or Start(env_seed=1)
    first = start.prefix[-1].observation if start.prefix else "o0"
    number = start.anchor
    ids, logprobs = np.array([1], np.int32), np.array([-0.5], np.float32)
    return Trajectory(
        id=name,
        env="e@1",
        params_json="",
        task_id=task,
        group_id=group,
        index=0,
        seed=0,
        start=start,
        first_observation=first,
        turns=tuple(Turn(i, None, ids, ids, logprobs, "stop", 0) for i in range(len(actions))),
        actions=tuple(actions),
        observations=tuple(f"o{number + i + 1}" for i in range(len(actions))),
        observation_hashes=(b"",) * len(actions),
        turn_rewards=(0.0,) * len(actions),
        illegal_actions=0,
        reward=float(passed),
        passed=passed,
        stop_reason=StopReason.FAILED if failure else StopReason.TERMINATED,
        failure=RolloutFailure(failure, "", 0) if failure else None,
        policy_step=1,
    )


def visit(pool: AnchorPool, anchor: Anchor, passed: int, rollouts: int = 8, *, step: int = 1) -> None:
    """Let a group of rollouts leave the expert's way at once from `anchor`; `passed` of them succeed nonetheless."""
    members = [
        played(
            ["x"], passed=n < passed, start=anchor.start(n), name=f"{step}-{n}", task=anchor.expert.task_id
        )
        for n in range(rollouts)
    ]
    pool.observe(step, {"g": anchor}, members)
