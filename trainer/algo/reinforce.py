"""REINFORCE: the score-function gradient with an optional group baseline, uncorrected for staleness.

Sources: Williams 1992 (Machine Learning 8), Eq. 4 and theorem 1; arXiv 2402.14740 for the leave-one-out baseline (RLOO).

    grad J = 1/Z sum over trajectories i, turns k, tokens t of  gamma^(K-k) (R_i - b_i) grad log pi_theta(t)

    b_i = 0 | mean of the group's R | mean of the others' R

Z is a constant (trajectories times token budget). With `leave_one_out` and gamma 1 this is RLOO.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from pydantic import Field, NonNegativeFloat

from agent_runtime.types import Trajectory
from trainer.algo.base import AlgoOptions, AlgorithmSpec, Credit, LossOutput
from trainer.algo.loss import aggregate, imitation_term, keep, mean_metric
from trainer.algo.returns import Baseline, Floats, baselines, chunk_returns, credit_group
from trainer.data.batch import TrainBatch

__all__ = ["REINFORCE", "REINFORCEOptions", "Reinforce"]


class REINFORCEOptions(AlgoOptions):
    """Options of REINFORCE."""

    baseline: Baseline = "group_mean"
    """What is subtracted from R, over the group's trajectories that did not fail."""
    gamma: float = Field(1.0, gt=0, le=1)
    """Discount per turn, counted back from the end; 1 credits all turns with the outcome."""
    lambda_il: NonNegativeFloat = 0.1
    """Weight of the imitation term."""


class Reinforce:
    """The algorithm `reinforce`."""

    needs_prox = False

    def __init__(self, options: REINFORCEOptions) -> None:
        self.options = options

    def credit(self, group: Sequence[Trajectory]) -> list[Credit]:
        """Return the discounted, baselined outcome per turn."""
        return credit_group(group, self._advantages, imitation_gamma=self.options.gamma)

    def _advantages(self, learners: Sequence[Trajectory]) -> list[Floats]:
        rewards_G = np.array([t.reward for t in learners])
        rewards_G = rewards_G - baselines(rewards_G, self.options.baseline)
        return [
            chunk_returns(reward, len(t.turns), self.options.gamma)
            for t, reward in zip(learners, rewards_G, strict=True)
        ]

    def loss(self, batch: TrainBatch, logprobs_BT: torch.Tensor) -> LossOutput:
        """Return minus the surrogate whose gradient is above, plus the weighted imitation term."""
        mask_BT = batch.loss_mask_BT
        surrogate_BT = keep(batch.advantages_BT, mask_BT) * keep(logprobs_BT, mask_BT)
        il, metrics = imitation_term(batch, logprobs_BT, "constant")
        metrics["reinforce/mu_minus_pi"] = mean_metric(batch.rollout_logprobs_BT - logprobs_BT, mask_BT)
        return LossOutput(aggregate(-surrogate_BT, batch, "constant") + self.options.lambda_il * il, metrics)


REINFORCE = AlgorithmSpec(
    name="reinforce",
    summary="the score-function gradient with a group baseline (Williams 1992)",
    options=REINFORCEOptions,
    build=Reinforce,
)
