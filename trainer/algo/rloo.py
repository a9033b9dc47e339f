"""RLOO, REINFORCE leave-one-out: each trajectory's baseline is the mean outcome of the others.

Source: arXiv 2402.14740, after Kool et al. 2019. On-policy unless a `correction` is set.

    A_i    = R_i - 1/(n-1) sum over j != i of R_j
    grad J = 1/N sum over trajectories i, tokens t of  c_t A_i grad log pi_theta(t)

It equals n/(n-1) times the baseline of the group's mean. A lone survivor of its group gives no signal. The paper puts a KL
divergence to the starting model into the reward: `kl_weight`, `kl_estimator k1`, `kl_place reward`, `kl_reference frozen`.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from agent_runtime.types import Trajectory
from trainer.algo.base import AlgorithmSpec, Credit, LossOutput
from trainer.algo.terms.corrections import CORRECTED
from trainer.algo.terms.loss import Aggregation
from trainer.algo.terms.objective import CorrectedOptions, policy_loss, policy_terms
from trainer.algo.terms.returns import credit_group, outcome_advantages
from trainer.data.batch import TrainBatch

__all__ = ["RLOO", "RLOOOptions", "Rloo"]


class RLOOOptions(CorrectedOptions):
    """Options of RLOO."""

    aggregation: Aggregation = "seq_mean_token_sum"
    """How token losses become one number, for the imitation term too."""


class Rloo:
    """The algorithm `rloo`."""

    def __init__(self, options: RLOOOptions) -> None:
        self.options = options
        self.needs_prox, self.needs_reference = options.needs_prox, options.needs_reference

    def credit(self, group: Sequence[Trajectory]) -> list[Credit]:
        """Return the outcome less the mean of the others, the same for all turns of a trajectory."""
        return credit_group(
            group,
            lambda learners: outcome_advantages(learners, "leave_one_out"),
            chunk_turns=self.options.credit_chunk_turns,
            every_token=self.options.trains_every_token,
        )

    def loss(self, batch: TrainBatch, logprobs_BT: torch.Tensor) -> LossOutput:
        """Return minus the surrogate whose gradient is above, plus the weighted imitation term."""
        terms = policy_terms(self.options, batch, logprobs_BT, score_function=True)
        surrogate_BT = terms.advantages_BT * terms.current_BT
        return policy_loss(self.options, batch, logprobs_BT, terms, surrogate_BT, self.options.aggregation)


RLOO = AlgorithmSpec(
    name="rloo",
    summary="REINFORCE with the others' mean as baseline (arXiv 2402.14740)",
    options=RLOOOptions,
    build=Rloo,
    off_policy=CORRECTED,
)
