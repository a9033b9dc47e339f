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

__all__ = ["Baseline", "baselines", "chunk_of_turn", "chunk_returns", "credit_group"]

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
    ahead = steps[None, :] - steps[:, None]
    discount = np.where(ahead >= 0, np.float64(gamma) ** np.maximum(ahead, 0), 0.0)
    return returns + discount @ rewards_C


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
