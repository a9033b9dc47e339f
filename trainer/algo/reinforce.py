"""REINFORCE: the score-function gradient with an optional group baseline.

Sources: Williams 1992 (Machine Learning 8), Eq. 4 and theorem 1. Uncorrected for staleness unless a `correction` is set.

    grad J = 1/Z sum over trajectories i, turns k, tokens t of  c_t gamma^(K-k) (R_i - b_i) grad log pi_theta(t)

    b_i = 0 | mean of the group's R | mean of the others' R          c_t = 1 | the correction of pi_theta / mu

Z is a constant (trajectories times token budget). `rloo` and `reinforce_pp` are its descendants.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from pydantic import Field

from agent_runtime.types import Trajectory
from trainer.algo.base import AlgorithmSpec, Credit, LossOutput
from trainer.algo.terms.corrections import CORRECTED
from trainer.algo.terms.objective import CorrectedOptions, policy_loss, policy_terms
from trainer.algo.terms.returns import Baseline, Floats, advantages_of, chunk_returns, credit_group, outcomes
from trainer.data.batch import TrainBatch

__all__ = ["REINFORCE", "REINFORCEOptions", "Reinforce"]


class REINFORCEOptions(CorrectedOptions):
    """Options of REINFORCE."""

    baseline: Baseline = "group_mean"
    """What is subtracted from R, over the group's trajectories that did not fail."""
    gamma: float = Field(1.0, gt=0, le=1)
    """Discount per turn, counted back from the end; 1 credits all turns with the outcome."""


class Reinforce:
    """The algorithm `reinforce`."""

    def __init__(self, options: REINFORCEOptions) -> None:
        self.options = options
        self.needs_prox, self.needs_reference = options.needs_prox, options.needs_reference

    def credit(self, group: Sequence[Trajectory]) -> list[Credit]:
        """Return the discounted, baselined outcome per turn."""
        options = self.options
        return credit_group(
            group,
            self._advantages,
            imitation_gamma=options.gamma,
            chunk_turns=options.credit_chunk_turns,
            every_token=options.trains_every_token,
        )

    def _advantages(self, learners: Sequence[Trajectory]) -> list[Floats]:
        rewards_G = advantages_of(outcomes(learners), self.options.baseline)
        return [
            chunk_returns(reward, len(t.turns), self.options.gamma)
            for t, reward in zip(learners, rewards_G, strict=True)
        ]

    def loss(self, batch: TrainBatch, logprobs_BT: torch.Tensor) -> LossOutput:
        """Return minus the surrogate whose gradient is above, plus the weighted imitation term."""
        terms = policy_terms(self.options, batch, logprobs_BT, score_function=True)
        surrogate_BT = terms.advantages_BT * terms.current_BT
        return policy_loss(self.options, batch, logprobs_BT, terms, surrogate_BT, "constant")


REINFORCE = AlgorithmSpec(
    name="reinforce",
    summary="the score-function gradient with a group baseline (Williams 1992)",
    options=REINFORCEOptions,
    build=Reinforce,
    off_policy=CORRECTED,
)
