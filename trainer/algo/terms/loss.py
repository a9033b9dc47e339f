"""What losses share: poison-proof masking, aggregation over a batch, the imitation term.

Every divisor is a constant of the whole batch carried by each of its parts, so losses and gradients of microbatches add
up to the batch's.

A masked entry is replaced *before* any arithmetic: 0 * NaN is NaN, and so would be its gradient.
"""

from __future__ import annotations

from typing import Literal

import torch

from trainer.algo.base import Metric
from trainer.data.batch import TrainBatch

__all__ = ["Aggregation", "aggregate", "imitation_term", "keep", "mean_metric"]

Aggregation = Literal["token_mean", "seq_mean_token_sum", "seq_mean_token_mean", "constant"]


def keep(values_BT: torch.Tensor, mask_BT: torch.Tensor) -> torch.Tensor:
    """Return the values with 0 wherever the mask is False; no gradient and no NaN comes from there."""
    return torch.where(mask_BT, values_BT, 0)


def aggregate(
    values_BT: torch.Tensor, batch: TrainBatch, aggregation: Aggregation, *, imitation: bool = False
) -> torch.Tensor:
    """Return the scalar that this part contributes to the batch's aggregate of `values_BT` (0 where masked).

    With N trajectories that train, n_i tokens in trajectory i (of a rollout all sampled, of an expert the imitated ones):
    `token_mean` 1/(sum n_i) sum_i sum_t (DAPO) · `seq_mean_token_sum` 1/N sum_i sum_t ·
    `seq_mean_token_mean` 1/N sum_i 1/n_i sum_t (GRPO) · `constant` 1/(requested * token budget) sum_i sum_t
    (Dr. GRPO). `imitation` takes the counts of the expert trajectories instead.
    """
    counts = batch.imitation_counts if imitation else batch.counts
    if aggregation == "constant":
        return values_BT.sum() / (batch.imitation_normalizer if imitation else batch.normalizer)
    if aggregation == "token_mean":
        return values_BT.sum() / max(counts.tokens, 1)
    if aggregation == "seq_mean_token_mean":
        values_BT = values_BT / batch.trajectory_tokens_B.clamp(min=1)[:, None]
    return values_BT.sum() / max(counts.trajectories, 1)


def imitation_term(
    batch: TrainBatch, logprobs_BT: torch.Tensor, aggregation: Aggregation
) -> tuple[torch.Tensor, dict[str, Metric]]:
    """Return the weighted negative log-likelihood of expert tokens and its metrics.

    Stands for the imitation part of arXiv 2512.24873, Eq. 10, without its literal factor pi(c*), which
    vanishes exactly for the rare chunks it should teach [ours].
    """
    mask_BT = batch.imitation_BT != 0
    nll_BT = -keep(logprobs_BT, mask_BT)
    term = aggregate(batch.imitation_BT * nll_BT, batch, aggregation, imitation=True)
    return term, {"imitation_nll": mean_metric(nll_BT, mask_BT)}


def mean_metric(values: torch.Tensor, mask: torch.Tensor) -> Metric:
    """Return the mean over the mask as a metric; entries outside the mask may be anything."""
    return Metric(float(keep(values.detach(), mask).sum()), float(mask.sum()))
