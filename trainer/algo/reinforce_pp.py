"""REINFORCE++: outcomes normalised over the whole batch instead of the group, PPO's clip per token.

Source: arXiv 2501.03262, and with `baseline group_mean` its REINFORCE++-baseline.

    A'_i = R_i - b_i                                       b_i = 0 | mean of the group's R | mean of the others' R
    A_i  = (A'_i - mean A') / (std A' + 1e-6)              over every token that the step's trajectories sampled
    J    = aggregate over tokens of  min(r_t A_i, clip(r_t, 1 - clip_low, 1 + clip_high) A_i)

Mean and deviation are of the batch (n), tokens counting once each as in the paper's reference code; failed trajectories and
experts are no part of it. The paper charges the KL divergence of later tokens to earlier ones; ours stays with its token.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from agent_runtime.types import Trajectory
from trainer.algo.base import AlgorithmSpec, Credit, LossOutput
from trainer.algo.terms.loss import Aggregation
from trainer.algo.terms.objective import RATIO_TO_SAMPLER, ClipOptions, clip_loss
from trainer.algo.terms.returns import Baseline, credit_group, outcome_advantages, whitened
from trainer.data.batch import TrainBatch

__all__ = ["REINFORCE_PP", "ReinforcePP", "ReinforcePPOptions"]


class ReinforcePPOptions(ClipOptions):
    """Options of REINFORCE++."""

    baseline: Baseline = "none"
    """What is subtracted before normalising, over the group's trajectories that did not fail; `group_mean` is the paper's
    REINFORCE++-baseline."""
    aggregation: Aggregation = "token_mean"
    """How token losses become one number, for the imitation term too."""


class ReinforcePP:
    """The algorithm `reinforce_pp`."""

    def __init__(self, options: ReinforcePPOptions) -> None:
        self.options = options
        self.needs_prox, self.needs_reference = options.ratio_needs_prox, options.needs_reference

    def credit(self, group: Sequence[Trajectory]) -> list[Credit]:
        """Return A', the outcome less its baseline; `across_groups` makes it A."""
        options = self.options
        return credit_group(
            group,
            lambda learners: outcome_advantages(learners, options.baseline),
            chunk_turns=options.credit_chunk_turns,
            every_token=options.trains_every_token,
        )

    def across_groups(self, trajectories: Sequence[Trajectory], credits: Sequence[Credit]) -> list[Credit]:
        """Return A: the credit normalised over the sampled tokens of the step."""
        return whitened(trajectories, credits)

    def loss(self, batch: TrainBatch, logprobs_BT: torch.Tensor) -> LossOutput:
        """Return minus J plus the weighted imitation term."""
        return clip_loss(self.options, batch, logprobs_BT, "reinforce_pp")


REINFORCE_PP = AlgorithmSpec(
    name="reinforce_pp",
    summary="outcomes normalised over the batch and PPO's token clip (arXiv 2501.03262)",
    options=ReinforcePPOptions,
    build=ReinforcePP,
    off_policy=RATIO_TO_SAMPLER,
)
