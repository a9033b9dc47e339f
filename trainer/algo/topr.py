"""TOPR, tapered off-policy REINFORCE: successes unweighted, failures by the truncated ratio of the whole sequence.

Source: arXiv 2503.14286, section 3, with its canonical bounds; T+ and T- by the sign of what R leaves over the baseline.

    grad J = 1/N ( sum over T+ of  (R - b) grad log pi(tau)  +  sum over T- of  clip(rho, 0, 1) (R - b) grad log pi(tau) )

    rho = prod over all tokens of  pi_theta / mu          R of a failure: reward_fail, -1 in the paper

The ratio is a product, so long failures that became unlikely stop counting; IPA's chunk ratio is the tempered form of it.
`baseline` stands for the paper's constant c, which shifts R before its sign is taken: nothing is pushed down without bound,
a success below its baseline neither. It takes no `correction`, having one of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from pydantic import Field

from agent_runtime.types import Trajectory
from trainer.algo.base import AlgorithmSpec, Credit, LossOutput
from trainer.algo.terms.chunks import chunks_of
from trainer.algo.terms.loss import Aggregation, mean_metric
from trainer.algo.terms.objective import RATIO_TO_SAMPLER, PolicyOptions, policy_loss, policy_terms
from trainer.algo.terms.returns import Baseline, Floats, advantages_of, credit_group, spread_over_turns
from trainer.data.batch import TrainBatch

__all__ = ["TOPR", "TOPROptions", "Topr"]


class TOPROptions(PolicyOptions):
    """Options of TOPR."""

    reward_fail: float = Field(-1.0, le=0)
    """R of a trajectory whose raw outcome is not positive."""
    baseline: Baseline = "none"
    """What is subtracted from R, over the group's trajectories that did not fail."""
    aggregation: Aggregation = "seq_mean_token_sum"
    """How token losses become one number, for the imitation term too."""


class Topr:
    """The algorithm `topr`."""

    def __init__(self, options: TOPROptions) -> None:
        self.options = options
        self.needs_prox, self.needs_reference = options.needs_prox, options.needs_reference

    def credit(self, group: Sequence[Trajectory]) -> list[Credit]:
        """Return the outcome less its baseline, the same for all turns of a trajectory, which is one chunk."""
        return credit_group(
            group, self._advantages, chunk_turns=0, every_token=self.options.trains_every_token
        )

    def _advantages(self, learners: Sequence[Trajectory]) -> list[Floats]:
        rewards_G = np.array([t.reward if t.reward > 0 else self.options.reward_fail for t in learners])
        return spread_over_turns(learners, advantages_of(rewards_G, self.options.baseline))

    def loss(self, batch: TrainBatch, logprobs_BT: torch.Tensor) -> LossOutput:
        """Return minus the surrogate whose gradient is above, plus the weighted imitation term."""
        terms = policy_terms(self.options, batch, logprobs_BT)
        mask_BT, chunks = batch.loss_mask_BT, chunks_of(batch)
        rho_BT = chunks.spread(chunks.total(terms.log_ratio_BT).exp())
        weight_BT = torch.where(terms.advantages_BT < 0, rho_BT.clamp(max=1), 1.0)
        objective_BT = weight_BT * terms.advantages_BT * terms.current_BT
        terms.metrics["topr/tapered_tokens"] = mean_metric((weight_BT < 1).to(rho_BT.dtype), mask_BT)
        terms.metrics["topr/weight"] = mean_metric(weight_BT, mask_BT)
        gone = {"tapered to 0": mask_BT & (weight_BT == 0)}
        return policy_loss(
            self.options, batch, logprobs_BT, terms, objective_BT, self.options.aggregation, masked=gone
        )


TOPR = AlgorithmSpec(
    name="topr",
    summary="successes unweighted, failures by their truncated sequence ratio (arXiv 2503.14286)",
    options=TOPROptions,
    build=Topr,
    off_policy=RATIO_TO_SAMPLER,
)
