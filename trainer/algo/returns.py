"""From outcomes to numbers per turn: chunk returns, group baselines, and who learns at all.

Called by every algorithm's `credit`; NumPy only. It never sees a token or a tensor.

A group is one task at one anchor by construction (`Trajectory.group_id`), so "group mean" and "mean per
(task, anchor)" are the same baseline and only the former is offered.

Shapes: G trajectories of a group, K turns, C chunks of one trajectory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from agent_runtime.types import Trajectory
from trainer.algo.base import Credit

__all__ = ["Baseline", "baselines", "chunk_of_turn", "chunk_returns", "credit_group", "state_advantages"]

Baseline = Literal["none", "group_mean", "leave_one_out"]

Floats = NDArray[np.float64]


def chunk_of_turn(turns: int, chunk_turns: int) -> NDArray[np.int64]:
    """Return the chunk each turn belongs to: `chunk_turns` consecutive turns each, 0 for one chunk in all."""
    size = chunk_turns or max(turns, 1)
    return np.arange(turns, dtype=np.int64) // size


def chunk_returns(final: float, chunks: int, gamma: float, rewards_C: Floats | None = None) -> Floats:
    """Return G per chunk: `G_k = gamma^(K-k) R_final` (arXiv 2512.24873, Eq. 7).

    With `rewards_C`: `G_k = r_k + gamma G_(k+1)`, `G_K = r_K + R_final`.
    """
    steps = np.arange(chunks)
    returns: Floats = final * gamma ** steps[::-1].astype(np.float64)
    if rewards_C is None:
        return returns
    return returns + _discounted(rewards_C, gamma)


def _discounted(values_C: Floats, gamma: float) -> Floats:
    """Return the sum over j >= k of `gamma^(j-k) values_j`, for every k."""
    steps = np.arange(len(values_C))
    ahead = steps[None, :] - steps[:, None]
    discount = np.where(ahead >= 0, np.float64(gamma) ** np.maximum(ahead, 0), 0.0)
    summed: Floats = discount @ values_C
    return summed


def baselines(scores_G: Floats, kind: Baseline) -> Floats:
    """Return what to subtract from each score: 0, the group's mean, or the mean of the others.

    A score without peers is its own baseline under both means: a lone survivor gives no signal.
    """
    if kind == "none" or len(scores_G) == 0:
        return np.zeros_like(scores_G)
    if kind == "group_mean" or len(scores_G) == 1:
        return np.full_like(scores_G, scores_G.mean())
    others: Floats = (scores_G.sum() - scores_G) / (len(scores_G) - 1)
    return others


def state_advantages(
    group: Sequence[Trajectory],
    returns: Sequence[Floats],
    finals_G: Floats,
    *,
    gamma: float,
    trace: float,
    size: int,
) -> list[Floats]:
    """Return each chunk's advantage over V(s), the mean return of the group's chunks that begin at the same observation.

    `returns` are the chunk returns G and `finals_G` the outcomes R they end in; chunks have `size` turns. `trace` 1
    gives `G_k - V(s_k)`; below, the sum over j of `(gamma trace)^j delta_(k+j)`, where `delta_k` is the advantage of G's
    first step with V(s_(k+1)) for the rest (generalised advantage estimation, arXiv 1506.02438, Eq. 16). A state visited
    once is its own baseline. The grouping is GiGPO's (arXiv 2505.10978, section 4.2); V assumes that the observation is
    the state.
    """
    ids: dict[str, int] = {}
    states = []
    for t in group:
        seen = (t.first_observation, *t.observations)[: len(t.turns) : size]
        states.append(np.array([ids.setdefault(observation, len(ids)) for observation in seen], np.int64))
    flat = np.concatenate([np.empty(0, np.int64), *states])
    totals = np.bincount(flat, np.concatenate([np.empty(0), *returns]), minlength=len(ids))
    means = totals / np.maximum(np.bincount(flat, minlength=len(ids)), 1)
    advantages = []
    for state_C, return_C, final in zip(states, returns, finals_G, strict=True):
        value_C = means[state_C]
        reward_C = return_C - gamma * np.append(return_C[1:], final / gamma)  # what G_k adds to gamma G_(k+1)
        delta_C = reward_C + gamma * np.append(value_C[1:], final / gamma) - value_C
        advantages.append(_discounted(delta_C, gamma * trace))
    return advantages


def credit_group(
    group: Sequence[Trajectory],
    advantages: Callable[[Sequence[Trajectory]], list[Floats]],
    *,
    imitation_gamma: float = 1.0,
    chunk_turns: int = 1,
) -> list[Credit]:
    """Return a credit per trajectory, asking `advantages` (one array per turn) only for those that learn.

    Failed rollouts and experts leave the group before any baseline is computed. An expert's turns are
    weighted `gamma^(K-k) R`; an expert that earned nothing is dropped.
    """
    learners = [t for t in group if t.failure is None and not t.is_expert]
    learned = iter(advantages(learners))
    credits: list[Credit] = []
    for trajectory in group:
        zeros = np.zeros(len(trajectory.turns))
        positive = trajectory.failure is None and trajectory.reward > 0
        if trajectory.failure is not None:
            credits.append(Credit(zeros, False, zeros, f"failed: {trajectory.failure.code}"))
        elif trajectory.is_expert:
            weights = chunk_returns(trajectory.reward, len(zeros), imitation_gamma) if positive else zeros
            credits.append(Credit(zeros, positive, weights, "" if positive else "expert without success"))
        else:
            chunk_K = chunk_of_turn(len(zeros), chunk_turns)
            credits.append(Credit(next(learned), positive, zeros, chunk_K=chunk_K))
    return credits
