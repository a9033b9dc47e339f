"""Keep the policy near another one: the KL divergence, estimated per token, in the loss or in the reward.

Part of every algorithm that takes the option `kl_weight`; pure. With `x = log pi_theta - log pi_ref` at a sampled token:

    k1 = x        k2 = x^2 / 2        k3 = exp(-x) - 1 + x           (Schulman 2020, "Approximating KL Divergence")

`kl_place = "loss"` adds `kl_weight k` to the token's loss and differentiates it. In expectation k2 then gives the gradient
of KL(pi || ref), k3 that of KL(ref || pi), and k1 zero, so that it is refused (arXiv 2510.01555).
`kl_place = "reward"` takes `kl_weight k`, detached, off the token's own advantage; k1 there equals k2 in the loss. Later
tokens' divergences are not charged to earlier ones [ours]: the term stays a sum over tokens that microbatches can cut.
Samples are of mu and the estimate is not reweighted to pi_theta [ours].

The reference: `sampler` is mu itself and `prox` the train engine as the batch's updates began; both cost nothing and keep a
step small. `frozen` is the model the run began with (`--model` or `--from`, before a warm-up): the learner holds a second
copy of the weights and fills `TrainBatch.reference_logprobs_BT`. It is rebuilt from the configuration, so checkpoints hold
no more than before.
"""

from __future__ import annotations

from typing import Literal, Self

import torch
from pydantic import NonNegativeFloat, model_validator

from trainer.algo.base import AlgoOptions
from trainer.algo.terms.loss import keep
from trainer.data.batch import TrainBatch

__all__ = ["KLOptions", "kl_estimate", "kl_per_token"]

_LOG_BOUND = 20.0
"""exp(20) is 5e8: finite in float32. k3 grows no further beyond, where a token's likelihood fell by as much."""


class KLOptions(AlgoOptions):
    """How the policy is kept near another."""

    kl_weight: NonNegativeFloat = 0.0
    """Weight of the divergence; 0 leaves it out."""
    kl_estimator: Literal["k1", "k2", "k3"] = "k3"
    """Per-token estimate (`trainer/algo/terms/kl.py`)."""
    kl_place: Literal["loss", "reward"] = "loss"
    """Differentiate the estimate, or take it off the token's advantage."""
    kl_reference: Literal["sampler", "prox", "frozen"] = "sampler"
    """Which policy: the one that sampled, the trainer's as the batch's updates began, or the run's first model."""

    @model_validator(mode="after")
    def _no_dead_kl(self) -> Self:
        chosen = {name: getattr(self, name) for name in ("kl_estimator", "kl_place", "kl_reference")}
        dead = {
            name: value for name, value in chosen.items() if value != type(self).model_fields[name].default
        }
        if dead and not self.kl_weight:
            raise ValueError(f"{dead} has no effect while kl_weight is 0: set kl_weight")
        if (self.kl_estimator, self.kl_place) == ("k1", "loss"):
            raise ValueError(
                "kl_estimator='k1' has a zero expected gradient in the loss: use k2 or k3, or kl_place='reward'"
            )
        return self


def kl_estimate(x_BT: torch.Tensor, estimator: str) -> torch.Tensor:
    """Return k1, k2 or k3 of `x = log pi_theta - log pi_ref`, differentiable."""
    if estimator == "k1":
        return x_BT
    if estimator == "k2":
        return x_BT.square() / 2
    return (-x_BT).clamp(max=_LOG_BOUND).exp() - 1 + x_BT


def kl_per_token(options: KLOptions, batch: TrainBatch, logprobs_BT: torch.Tensor) -> torch.Tensor:
    """Return the estimate at every trained token, 0 elsewhere. Raise `ValueError` without the reference it needs."""
    mask_BT = batch.loss_mask_BT
    current_BT = keep(logprobs_BT, mask_BT)
    if options.kl_reference == "sampler":
        reference_BT = batch.rollout_logprobs_BT
    elif options.kl_reference == "prox":
        reference_BT = current_BT.detach() if batch.prox_logprobs_BT is None else batch.prox_logprobs_BT
    elif batch.reference_logprobs_BT is None:
        raise ValueError(
            "kl_reference='frozen' needs reference_logprobs_BT in the batch, got None: whoever builds the batch must "
            "score it with the reference policy when the algorithm's `needs_reference` is True."
        )
    else:
        reference_BT = batch.reference_logprobs_BT
    return kl_estimate(current_BT - keep(reference_BT, mask_BT), options.kl_estimator)
