"""CISPO: REINFORCE with a truncated importance weight per token, which no clip ever silences.

Source: arXiv 2506.13585 (MiniMax-M1), Eqs. 4 and 5.

    A_i = (R_i - mean R) / (std R + 1e-6)
    r_t = pi_theta(t) / mu(t)
    J   = aggregate over tokens of  sg[clip(r_t, 1 - clip_low, 1 + clip_high)] A_i log pi_theta(t)

The paper sets no lower bound (`clip_low 1`) and tunes the upper one without saying its value; 5 in all is [ours].
With a `correction`, r is taken against pi_prox. The paper also uses DAPO's dynamic sampling (`filter.dynamic`) and length
penalty; neither is part of this loss.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from pydantic import Field, NonNegativeFloat

from agent_runtime.types import Trajectory
from trainer.algo.base import AlgorithmSpec, Credit, LossOutput
from trainer.algo.terms.loss import Aggregation, mean_metric
from trainer.algo.terms.objective import (
    RATIO_TO_SAMPLER,
    CorrectedOptions,
    bounded_exp,
    policy_loss,
    policy_terms,
)
from trainer.algo.terms.returns import credit_group, outcome_advantages
from trainer.data.batch import TrainBatch

__all__ = ["CISPO", "CISPOOptions", "Cispo"]


class CISPOOptions(CorrectedOptions):
    """Options of CISPO."""

    clip_low: float = Field(1.0, ge=0, le=1)
    """Weights are at least 1 - clip_low."""
    clip_high: NonNegativeFloat = 4.0
    """Weights are at most 1 + clip_high."""
    normalize_std: bool = True
    """Divide advantages by the group's standard deviation."""
    aggregation: Aggregation = "token_mean"
    """How token losses become one number, for the imitation term too."""


class Cispo:
    """The algorithm `cispo`."""

    def __init__(self, options: CISPOOptions) -> None:
        self.options = options
        self.needs_prox, self.needs_reference = options.ratio_needs_prox, options.needs_reference

    def credit(self, group: Sequence[Trajectory]) -> list[Credit]:
        """Return the normalised outcome of each trajectory, the same for all its turns."""
        options = self.options
        return credit_group(
            group,
            lambda learners: outcome_advantages(learners, "group_mean", normalize_std=options.normalize_std),
            chunk_turns=options.credit_chunk_turns,
            every_token=options.trains_every_token,
        )

    def loss(self, batch: TrainBatch, logprobs_BT: torch.Tensor) -> LossOutput:
        """Return minus J plus the weighted imitation term."""
        options = self.options
        terms = policy_terms(options, batch, logprobs_BT)
        ratio_BT = bounded_exp(terms.log_ratio_BT.detach())
        weight_BT = ratio_BT.clamp(1 - options.clip_low, 1 + options.clip_high)
        objective_BT = weight_BT * terms.advantages_BT * terms.current_BT
        cut_BT = (weight_BT != ratio_BT).to(ratio_BT.dtype)
        terms.metrics["cispo/ratio"] = mean_metric(ratio_BT, batch.loss_mask_BT)
        terms.metrics["cispo/clipped_tokens"] = mean_metric(cut_BT, batch.loss_mask_BT)
        return policy_loss(options, batch, logprobs_BT, terms, objective_BT, options.aggregation)


CISPO = AlgorithmSpec(
    name="cispo",
    summary="REINFORCE with clipped importance weights (arXiv 2506.13585)",
    options=CISPOOptions,
    build=Cispo,
    off_policy=RATIO_TO_SAMPLER,
)
