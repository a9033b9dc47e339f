"""What policy-gradient losses share: ratios, corrected advantages, PPO's clip, and putting the terms together.

An algorithm turns `Terms` into an objective per token; here it gets its correction, its KL term, its aggregation and
the imitation term. Pure.

    L = aggregate over tokens of ( - c_t objective_t + kl_weight k_t )  +  lambda_il  imitation
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import torch
from pydantic import Field, NonNegativeFloat, model_validator

from trainer.algo.base import LossOutput, Metric, OffPolicy
from trainer.algo.terms.corrections import CorrectionOptions, correction_weight
from trainer.algo.terms.kl import KLOptions, kl_per_token
from trainer.algo.terms.loss import Aggregation, aggregate, imitation_term, keep, mean_metric
from trainer.data.batch import TrainBatch

__all__ = [
    "RATIO_TO_SAMPLER",
    "ClipOptions",
    "CorrectedOptions",
    "PolicyOptions",
    "Terms",
    "bounded_exp",
    "clip_loss",
    "clipped",
    "policy_loss",
    "policy_terms",
]

_LOG_RATIO_BOUND = 20.0
"""exp(20) is 5e8: finite in float32, and far outside any clip."""
RATIO_TO_SAMPLER = OffPolicy(lambda options: math.inf)
"""Of algorithms that bound the ratio of the policy to the weights that sampled, with or without a `correction`."""


class PolicyOptions(KLOptions):
    """Options of every policy-gradient algorithm."""

    lambda_il: NonNegativeFloat = 0.1
    """Weight of the imitation term."""

    @property
    def needs_prox(self) -> bool:
        """Return whether anything is measured against pi_prox."""
        return self.kl_reference == "prox"

    @property
    def needs_reference(self) -> bool:
        """Return whether the batch must carry a frozen reference's log-probabilities."""
        return self.kl_reference == "frozen"

    @property
    def trains_every_token(self) -> bool:
        """Return whether tokens without credit have a gradient nonetheless."""
        return self.kl_weight > 0


class CorrectedOptions(PolicyOptions, CorrectionOptions):
    """Options of those whose tokens can be corrected."""

    @property
    def ratio_needs_prox(self) -> bool:
        """Return whether an algorithm with a ratio of its own needs pi_prox: its correction's other side."""
        return self.correction != "none" or self.needs_prox


class ClipOptions(CorrectedOptions):
    """Options of PPO's clip."""

    clip_low: float = Field(0.2, ge=0, le=1)
    """Ratios below 1 - clip_low earn no more from a negative advantage."""
    clip_high: NonNegativeFloat = 0.2
    """Ratios above 1 + clip_high earn no more from a positive advantage; 0.28 is DAPO's clip-higher."""
    dual_clip: float = Field(float("inf"), gt=1)
    """Ratios above it lose no more from a negative advantage (dual-clip PPO, usually 3); `inf` leaves it out."""
    aggregation: Aggregation = "seq_mean_token_mean"
    """How token losses become one number, for the imitation term too."""

    @model_validator(mode="after")
    def _dual_clip_is_outside(self) -> Self:
        if self.dual_clip != float("inf") and self.dual_clip <= 1 + self.clip_high:
            raise ValueError(
                f"dual_clip must exceed 1 + clip_high = {1 + self.clip_high:g}, got {self.dual_clip:g}: raise it"
            )
        return self


@dataclass(frozen=True, slots=True, eq=False)
class Terms:
    """What an algorithm builds its objective from; 0 where nothing trains, except for a weight."""

    current_BT: torch.Tensor
    """log pi_theta, differentiable."""
    log_ratio_BT: torch.Tensor
    """log pi_theta - log pi_old, differentiable: pi_old is mu, or pi_prox where a correction covers `pi_prox / mu`."""
    advantages_BT: torch.Tensor
    """The credit, less a KL penalty that belongs to the reward."""
    weight_BT: torch.Tensor
    """The correction c, detached."""
    penalty_BT: torch.Tensor
    """`kl_weight` times the divergence that belongs to the loss."""
    metrics: dict[str, Metric]


def policy_terms(
    options: PolicyOptions,
    batch: TrainBatch,
    logprobs_BT: torch.Tensor,
    *,
    decoupled: bool = False,
    score_function: bool = False,
) -> Terms:
    """Return the terms of a batch.

    `decoupled` measures the ratio against pi_prox even without a correction. `score_function` is for algorithms without
    a ratio: their correction then covers the drift within a batch's updates too.
    """
    mask_BT = batch.loss_mask_BT
    current_BT, mu_BT = keep(logprobs_BT, mask_BT), keep(batch.rollout_logprobs_BT, mask_BT)
    prox_BT = current_BT.detach()
    if batch.prox_logprobs_BT is not None and not score_function:
        prox_BT = keep(batch.prox_logprobs_BT, mask_BT)
    weight_BT, metrics = torch.ones_like(mu_BT), dict[str, Metric]()
    if isinstance(options, CorrectionOptions) and options.correction != "none":
        decoupled = True
        weight_BT, metrics = correction_weight(options, batch, prox_BT - mu_BT)
    old_BT = prox_BT if decoupled else mu_BT
    advantages_BT = keep(batch.advantages_BT, mask_BT)
    penalty_BT = torch.zeros_like(current_BT)
    if options.kl_weight:
        kl_BT = kl_per_token(options, batch, logprobs_BT)
        metrics["kl"] = mean_metric(kl_BT, mask_BT)
        if options.kl_place == "loss":
            penalty_BT = options.kl_weight * kl_BT
        else:
            advantages_BT = advantages_BT - options.kl_weight * kl_BT.detach()
    return Terms(current_BT, current_BT - old_BT, advantages_BT, weight_BT, penalty_BT, metrics)


def bounded_exp(log_ratio: torch.Tensor) -> torch.Tensor:
    """Return the ratio, finite whatever its logarithm; no gradient beyond the bound."""
    return log_ratio.clamp(-_LOG_RATIO_BOUND, _LOG_RATIO_BOUND).exp()


def clipped(
    options: ClipOptions,
    ratio_BT: torch.Tensor,
    advantages_BT: torch.Tensor,
    mask_BT: torch.Tensor,
    name: str,
) -> tuple[torch.Tensor, dict[str, Metric]]:
    """Return PPO's clipped objective per token and metrics under `name`.

    `min(r A, clip(r, 1 - clip_low, 1 + clip_high) A)`, and where A < 0 no less than `dual_clip A`
    (dual-clip PPO, arXiv 1912.09729).
    """
    free_BT = ratio_BT * advantages_BT
    bound_BT = ratio_BT.clamp(1 - options.clip_low, 1 + options.clip_high) * advantages_BT
    objective_BT = torch.minimum(free_BT, bound_BT)
    if options.dual_clip != float("inf"):
        floor_BT = torch.where(advantages_BT < 0, options.dual_clip * advantages_BT, -torch.inf)
        objective_BT = torch.maximum(objective_BT, floor_BT)
    changed_BT = (objective_BT != free_BT).to(ratio_BT.dtype)
    return objective_BT, {
        f"{name}/ratio": mean_metric(ratio_BT, mask_BT),
        f"{name}/clipped_tokens": mean_metric(changed_BT, mask_BT),
    }


def clip_loss(
    options: ClipOptions, batch: TrainBatch, logprobs_BT: torch.Tensor, name: str, *, decoupled: bool = False
) -> LossOutput:
    """Return the whole loss of an algorithm with PPO's clip per token; `decoupled` as in `policy_terms`."""
    terms = policy_terms(options, batch, logprobs_BT, decoupled=decoupled)
    ratio_BT = bounded_exp(terms.log_ratio_BT)
    objective_BT, metrics = clipped(options, ratio_BT, terms.advantages_BT, batch.loss_mask_BT, name)
    terms.metrics.update(metrics)
    return policy_loss(options, batch, logprobs_BT, terms, objective_BT, options.aggregation)


def policy_loss(
    options: PolicyOptions,
    batch: TrainBatch,
    logprobs_BT: torch.Tensor,
    terms: Terms,
    objective_BT: torch.Tensor,
    aggregation: Aggregation,
    *,
    masked: Mapping[str, torch.Tensor] | None = None,
) -> LossOutput:
    """Return minus the aggregated objective, corrected, plus the KL and imitation terms; `masked` has no objective."""
    mask_BT = batch.loss_mask_BT
    rl = aggregate(terms.penalty_BT - terms.weight_BT * objective_BT, batch, aggregation)
    il, metrics = imitation_term(batch, logprobs_BT, aggregation)
    metrics |= terms.metrics
    # A divergence in the loss reaches the tokens that have no objective too.
    keeps_all = bool(options.kl_weight) and options.kl_place == "loss"
    left_out = {} if keeps_all else {"correction": mask_BT & (terms.weight_BT == 0), **(masked or {})}
    return LossOutput(rl + options.lambda_il * il, metrics, left_out)
