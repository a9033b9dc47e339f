"""What an algorithm learns from rollouts, in a sentence, found by asking it: `ale train --dry-run` says it.

A made-up step is credited and differentiated; what each turn's log-probability is pushed by says whether failures count, how
much, and what they are compared with. So the sentence follows the options, and a plugin's algorithm has one, too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from agent_runtime.types import Start, StopReason, Trajectory, Turn
from trainer.algo.base import Algorithm, AlgorithmSpec, NeedsCritic, credit_step
from trainer.algo.terms.returns import Floats
from trainer.data.batch import TrainBatch
from trainer.data.build import build_batch

__all__ = ["lesson_of"]

_TURNS = 3
_FIRST, _SECOND, _THIRD = range(3)
"""Groups of the step: in the first successes come before failures, in the others all do alike."""


def lesson_of(spec: AlgorithmSpec, algorithm: Algorithm, group_size: int) -> str:
    """Return one sentence on what the algorithm, built by its options, learns from groups of this many rollouts."""
    failures = group_size // 2
    step = _step(group_size, failures, others=(1.0, 0.0))
    pushes_GNK = _pushes(algorithm, step, group_size) if spec.learns_from_rollouts else np.zeros((3, 1, 1))
    pushes_GN = pushes_GNK.sum(axis=2)
    if not pushes_GN.any():
        alone = " (in groups of one no rollout differs from its group)" if group_size == 1 else ""
        return f"learns from experts only (imitation): no rollout moves the policy{alone}."
    if isinstance(algorithm, NeedsCritic):
        said = "learns from each rollout's reward less a learned critic's value of each state"
        return f"{said}{_details(algorithm, step, pushes_GNK, group_size)}."
    success = pushes_GN[_FIRST, 0]
    compared = _compared_with(algorithm, step, pushes_GNK, group_size)
    failure = pushes_GN[_FIRST, -1] if failures else pushes_GN[_THIRD, 0]
    if not failure and not compared:
        said = "learns from successes only (rejection sampling): a failure moves nothing"
    elif not failure:
        said = f"learns from successes only, each by its reward less {compared}: a failure only lowers that"
    else:
        # Less a mean the two sides of a group weigh the same in all; without one each rollout does.
        balance = failures / (group_size - failures) if compared and failures else 1.0
        weight = -failure / success * balance if success else math.inf
        less = f"less {compared}" if compared else "as it is, without a baseline"
        said = f"learns from each rollout's reward {less}; failures count with weight {weight:.2g}"
    return f"{said}{_details(algorithm, step, pushes_GNK, group_size)}."


def _compared_with(algorithm: Algorithm, step: list[Trajectory], pushes_GNK: Floats, group_size: int) -> str:
    """Return what a reward is taken less; "" for nothing."""
    if not _same(pushes_GNK, _pushes(algorithm, list(map(_in_states_of_its_own, step)), group_size)):
        return "the mean of its group, turn by turn of those in the same state"
    pushes_GN = pushes_GNK.sum(axis=2)
    if not _same(pushes_GN[_FIRST, 0], pushes_GN[_SECOND, 0]):
        return "the mean of its group"
    worse = _pushes(algorithm, _step(group_size, group_size // 2, others=(0.0, 0.0)), group_size).sum(axis=2)
    return "" if _same(pushes_GN[_FIRST], worse[_FIRST]) else "the mean of the step"


def _details(algorithm: Algorithm, step: list[Trajectory], pushes_GNK: Floats, group_size: int) -> str:
    """Return what else is to be said: discount, rewards of turns, groups without a difference."""
    told = []
    first, second = pushes_GNK[_FIRST, 0, :2]
    apart = _pushes(algorithm, list(map(_in_states_of_its_own, step)), group_size)
    discounts = not isinstance(algorithm, NeedsCritic) and _same(pushes_GNK, apart)
    if discounts and second and not _same(first, second) and 0 < first / second < 1:
        told.append(f"a turn counts {first / second:.2g} of the next one")
    paid = [replace(t, turn_rewards=(0.0, 0.5, 0.0)) if at == 0 else t for at, t in enumerate(step)]
    if not _same(pushes_GNK, _pushes(algorithm, paid, group_size)):
        told.append("rewards of turns are added")
    if not pushes_GNK[_SECOND].any() and not pushes_GNK[_THIRD].any():
        told.append("a group that all passes or all fails teaches nothing")
    return "".join(f"; {each}" for each in told)


def _step(group_size: int, failures: int, others: tuple[float, float]) -> list[Trajectory]:
    """Return a group with so many failures, and two whose rollouts all have one reward."""
    mixed = [1.0] * (group_size - failures) + [0.0] * failures
    rewards = [*mixed, *(reward for reward in others for _ in range(group_size))]
    return [_rollout(index, index // group_size, reward) for index, reward in enumerate(rewards)]


def _in_states_of_its_own(rollout: Trajectory) -> Trajectory:
    """Return a rollout that after its first turn meets what no other one does."""
    hashes = tuple(f"{rollout.id} {turn}".encode() for turn in range(_TURNS))
    return replace(rollout, observation_hashes=hashes)


def _rollout(index: int, group: int, reward: float) -> Trajectory:
    tokens_K = np.arange(_TURNS, dtype=np.int32) + 1 + index * _TURNS
    prompt, sure = np.zeros(1, np.int32), np.zeros(1, np.float32)
    turns = tuple(
        Turn(k, k - 1 if k else None, prompt[k:], tokens_K[k : k + 1], sure, "stop", policy_version=0)
        for k in range(_TURNS)
    )
    return Trajectory(
        id=f"rollout {index}",
        env="none@1",
        params_json="{}",
        task_id=f"task {group}",
        group_id=f"group {group}",
        index=index,
        seed=0,
        start=Start(0),
        first_observation="",
        turns=turns,
        actions=("",) * _TURNS,
        observations=("",) * _TURNS,
        observation_hashes=tuple(f"state {k}".encode() for k in range(_TURNS)),
        turn_rewards=(0.0,) * _TURNS,
        illegal_actions=0,
        reward=reward,
        passed=reward > 0,
        stop_reason=StopReason.TERMINATED,
    )


def _pushes(algorithm: Algorithm, step: Sequence[Trajectory], group_size: int) -> Floats:
    """Return by what credit has the loss raise the log-probability of each turn (GNK)."""
    halves = [np.full(_TURNS + 1, 0.5) for _ in step]  # what a critic says
    credits = credit_step(algorithm, step, halves if isinstance(algorithm, NeedsCritic) else None)
    batch, _ = build_batch(step, credits, token_budget=_TURNS, skip_zero_credit=False)
    batch = replace(
        batch, reference_logprobs_BT=batch.rollout_logprobs_BT, old_logprobs_BT=batch.rollout_logprobs_BT
    )
    idle = replace(batch, advantages_BT=torch.zeros_like(batch.advantages_BT))
    pushes = _gradient(algorithm, idle, len(step)) - _gradient(algorithm, batch, len(step))
    return pushes.reshape(3, group_size, _TURNS)


def _gradient(algorithm: Algorithm, batch: TrainBatch, rollouts: int) -> Floats:
    table = torch.zeros(1 + rollouts * _TURNS, requires_grad=True)
    loss = algorithm.loss(batch, table[batch.tokens_BT]).loss + 0 * table.sum()
    (found,) = torch.autograd.grad(loss, table)
    return found[1:].double().numpy()


def _same(one: object, other: object) -> bool:
    return bool(np.allclose(np.asarray(one), np.asarray(other), rtol=1e-4, atol=1e-7))
