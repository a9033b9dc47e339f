"""GiGPO, group-in-group policy optimization: outcomes compared within the task, turns within the state they began at.

Source: arXiv 2505.10978, section 4.

    A_E = (R_i - mean R) / F                        over the group's trajectories (R with the turns' rewards, if asked)
    A_S = (G_k - mean G) / F                        over the group's turns that began at the same observation
    G_k = gamma^(K-k) R_i                           (plus the discounted rewards of the turns, if asked)
    A   = A_E + step_weight A_S                     F: the deviation (n - 1) plus 1e-6, or 1
    J   = aggregate over tokens of  min(r_t A, clip(r_t, 1 - clip_low, 1 + clip_high) A)

A state is the hash of an observation, so the environment needs no snapshots; where the observation hides the state, unlike
states share a group. A state met once has A_S = 0. The paper's KL term is `kl_weight 0.01`, `kl_reference frozen`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from pydantic import Field, NonNegativeFloat

from agent_runtime.types import Trajectory
from trainer.algo.base import AlgorithmSpec, Credit, LossOutput
from trainer.algo.terms.objective import RATIO_TO_SAMPLER, ClipOptions, clip_loss
from trainer.algo.terms.returns import (
    STD_EPSILON,
    Floats,
    credit_group,
    outcome_advantages,
    state_ids,
    turn_returns,
)
from trainer.data.batch import TrainBatch

__all__ = ["GIGPO", "Gigpo", "GigpoOptions"]


class GigpoOptions(ClipOptions):
    """Options of GiGPO; defaults as in the paper, the KL term left out."""

    step_weight: NonNegativeFloat = 1.0
    """Weight of a turn's advantage within its state; 0 is GRPO."""
    gamma: float = Field(0.95, gt=0, le=1)
    """Discount per turn of the returns that turns are compared by."""
    normalize_std: bool = True
    """Divide both advantages by the deviation of what they are compared with."""
    turn_rewards: bool = False
    """Add the environment's per-turn rewards to both returns. Leave off where the outcome already contains them."""


class Gigpo:
    """The algorithm `gigpo`."""

    def __init__(self, options: GigpoOptions) -> None:
        self.options = options
        self.needs_prox, self.needs_reference = options.ratio_needs_prox, options.needs_reference

    def credit(self, group: Sequence[Trajectory]) -> list[Credit]:
        """Return A per turn."""
        return credit_group(
            group,
            self._advantages,
            chunk_turns=self.options.credit_chunk_turns,
            every_token=self.options.trains_every_token,
        )

    def _advantages(self, learners: Sequence[Trajectory]) -> list[Floats]:
        options = self.options
        episodes = outcome_advantages(
            learners,
            "group_mean",
            normalize_std=options.normalize_std,
            turn_rewards=options.turn_rewards,
        )
        if not learners:
            return episodes
        returns = turn_returns(learners, options.gamma, turn_rewards=options.turn_rewards)
        steps_N = _within_states(
            np.concatenate(returns), np.concatenate(state_ids(learners)), options.normalize_std
        )
        steps = np.split(steps_N, np.cumsum([len(t.turns) for t in learners])[:-1])
        return [episode + options.step_weight * step for episode, step in zip(episodes, steps, strict=True)]

    def loss(self, batch: TrainBatch, logprobs_BT: torch.Tensor) -> LossOutput:
        """Return minus J plus the weighted imitation term."""
        return clip_loss(self.options, batch, logprobs_BT, "gigpo")


def _within_states(returns_N: Floats, state_N: np.ndarray, normalize_std: bool) -> Floats:
    """Return A_S of N turns: each return less its state's mean, over its state's deviation if asked."""
    visits_S = np.bincount(state_N)
    mean_S = np.bincount(state_N, returns_N) / visits_S
    low_S, high_S = np.full(len(visits_S), np.inf), np.full(len(visits_S), -np.inf)
    np.minimum.at(low_S, state_N, returns_N)
    np.maximum.at(high_S, state_N, returns_N)
    # As in `mean_of`: where all returns are equal rounding must not make a credit of nothing.
    centred_N: Floats = returns_N - np.where(low_S == high_S, low_S, mean_S)[state_N]
    if normalize_std:
        squares_S = np.bincount(state_N, centred_N**2)
        centred_N = centred_N / (np.sqrt(squares_S / np.maximum(visits_S - 1, 1)) + STD_EPSILON)[state_N]
    return centred_N


GIGPO = AlgorithmSpec(
    name="gigpo",
    summary="advantages within the task and within the state (arXiv 2505.10978)",
    options=GigpoOptions,
    build=Gigpo,
    off_policy=RATIO_TO_SAMPLER,
)
