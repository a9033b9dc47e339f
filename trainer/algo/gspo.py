"""GSPO, Group Sequence Policy Optimization: ratio and clip of the whole sequence, length-normalised.

Source: arXiv 2507.18071, Eqs. 5-7; computed in the token form of Eqs. 13-14, whose value and gradient are the same.

    s_i = (prod over tokens of pi_theta / mu)^(1/n_i)            the geometric mean, one number per trajectory
    A_i = (R_i - mean R) / (std R + 1e-6)
    J   = 1/N sum over i of  min(s_i A_i, clip(s_i, 1 - clip_low, 1 + clip_high) A_i)

A trajectory is one sequence: all tokens it sampled, over all turns. The batch's chunk is therefore the trajectory, so a
correction works on tokens or sequences here. `seq_mean_token_mean` is the paper's 1/N sum over i of 1/n_i sum over t.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import torch
from pydantic import Field, NonNegativeFloat, model_validator

from agent_runtime.types import Trajectory
from trainer.algo.base import AlgorithmSpec, Credit, LossOutput
from trainer.algo.grpo import GRPOOptions
from trainer.algo.terms.chunks import chunks_of
from trainer.algo.terms.loss import keep
from trainer.algo.terms.objective import RATIO_TO_SAMPLER, bounded_exp, clipped, policy_loss, policy_terms
from trainer.algo.terms.returns import credit_group, outcome_advantages
from trainer.data.batch import TrainBatch

__all__ = ["GSPO", "GSPOOptions", "Gspo"]


class GSPOOptions(GRPOOptions):
    """Options of GSPO; the clip range is the paper's."""

    clip_low: float = Field(3e-4, ge=0, le=1)
    """Sequence ratios below 1 - clip_low earn no more from a negative advantage."""
    clip_high: NonNegativeFloat = 4e-4
    """Sequence ratios above 1 + clip_high earn no more from a positive advantage."""

    @model_validator(mode="after")
    def _sequences_only(self) -> Self:
        if self.correction.endswith("_chunk"):
            raise ValueError(
                f"correction={self.correction!r}: GSPO knows tokens and sequences; use '_token' or '_sequence'"
            )
        return self


class Gspo:
    """The algorithm `gspo`."""

    def __init__(self, options: GSPOOptions) -> None:
        self.options = options
        self.needs_prox, self.needs_reference = options.ratio_needs_prox, options.needs_reference

    def credit(self, group: Sequence[Trajectory]) -> list[Credit]:
        """Return the normalised outcome of each trajectory, which is one chunk."""
        options = self.options
        return credit_group(
            group,
            lambda learners: outcome_advantages(learners, "group_mean", normalize_std=options.normalize_std),
            chunk_turns=0,
            every_token=options.trains_every_token,
        )

    def loss(self, batch: TrainBatch, logprobs_BT: torch.Tensor) -> LossOutput:
        """Return minus J plus the weighted imitation term."""
        options = self.options
        terms = policy_terms(options, batch, logprobs_BT)
        chunks = chunks_of(batch)
        # The value is s_i, the gradient s_i times that of the token's log pi: Eq. 14, whose mean over tokens is Eq. 5's.
        sequence_BT = keep(chunks.spread(bounded_exp(chunks.mean(terms.log_ratio_BT))), batch.loss_mask_BT)
        ratio_BT = sequence_BT * (terms.current_BT - terms.current_BT.detach()).exp()
        objective_BT, metrics = clipped(options, ratio_BT, terms.advantages_BT, batch.loss_mask_BT, "gspo")
        terms.metrics.update(metrics)
        return policy_loss(options, batch, logprobs_BT, terms, objective_BT, options.aggregation)


GSPO = AlgorithmSpec(
    name="gspo",
    summary="ratio and clip of whole sequences (arXiv 2507.18071)",
    options=GSPOOptions,
    build=Gspo,
    off_policy=RATIO_TO_SAMPLER,
)
