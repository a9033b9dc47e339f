"""What keeps a policy trying, beside any algorithm's own loss: its entropy, and its distance from the policy of the warm-up.

    L = L of the algorithm  -  entropy_coef  mean H  +  kl_coef  mean k3

    k3 = exp(-x) - 1 + x,  x = log pi_theta - log pi of the warm-up

H = - sum over v of pi_theta(v) log pi_theta(v) is exact and differentiated through the whole distribution (Williams and Peng
1991), at states that the sampler reached. Means are over all RL tokens of the batch, also those without credit: what all
groups already do is what must not become the only thing that they do. `entropy_over = "turns"` gives each turn the same
weight, however many tokens it has. Divisors are constants of the batch, so microbatches add up. Put around the loss by the
learner; pure.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch

from trainer.algo.base import LossOutput, Metric
from trainer.algo.terms.kl import kl_estimate
from trainer.algo.terms.loss import keep, mean_metric
from trainer.data.batch import TrainBatch

__all__ = ["Explored", "entropy_mean"]


@dataclass(frozen=True, slots=True, eq=False)
class Explored:
    """An algorithm's loss with the two terms. A weight of 0 leaves its term out."""

    loss: Callable[[TrainBatch, torch.Tensor], LossOutput]
    entropy_coef: float
    kl_coef: float
    over: Literal["tokens", "turns"] = "tokens"

    def __call__(self, batch: TrainBatch, logprobs_BT: torch.Tensor) -> LossOutput:
        """Return the whole loss, which leaves no RL token without a gradient."""
        output = self.loss(batch, logprobs_BT)
        loss, metrics = output.loss, dict[str, Metric]()
        mask_BT = batch.loss_mask_BT
        if self.entropy_coef:
            if batch.entropy_BT is None:
                raise ValueError(
                    "an entropy term needs entropy_BT in the batch, got None: a train engine fills it where the batch "
                    "`wants_entropy`."
                )
            loss = loss - self.entropy_coef * entropy_mean(batch, batch.entropy_BT, self.over)
            metrics["explore/entropy"] = mean_metric(batch.entropy_BT, mask_BT)
        if self.kl_coef:
            if batch.warmup_logprobs_BT is None:
                raise ValueError(
                    "a divergence from the warm-up needs warmup_logprobs_BT in the batch, got None: the learner fills it."
                )
            x_BT = keep(logprobs_BT, mask_BT) - keep(batch.warmup_logprobs_BT, mask_BT)
            k3_BT = kl_estimate(x_BT, "k3")
            loss = loss + self.kl_coef * k3_BT.sum() / max(batch.counts.tokens, 1)
            metrics["explore/kl"] = mean_metric(k3_BT, mask_BT)
        return LossOutput(loss, {**output.metrics, **metrics})


def entropy_mean(
    batch: TrainBatch, entropy_BT: torch.Tensor, over: Literal["tokens", "turns"]
) -> torch.Tensor:
    """Return what this part adds to the batch's mean entropy (nats) of an RL token, or to the mean over turns of theirs."""
    entropy_BT = keep(entropy_BT, batch.loss_mask_BT)
    if over == "tokens":
        return entropy_BT.sum() / max(batch.counts.tokens, 1)
    assert batch.opens_turn_BT is not None  # the batch builder's always has it
    rows, width = entropy_BT.shape
    turn_BT = (batch.opens_turn_BT >= 0).cumsum(1) + torch.arange(rows, device=entropy_BT.device)[:, None] * (
        width + 1
    )
    count_U = torch.bincount(turn_BT[batch.loss_mask_BT], minlength=rows * (width + 1))
    return (entropy_BT / count_U[turn_BT].clamp(min=1)).sum() / max(batch.counts.turns, 1)
