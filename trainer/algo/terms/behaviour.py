"""Whom IPA's ratio is taken against: the three behaviour modes.

Eqs. 8 and 9 of arXiv 2512.24873 take pi_theta / pi_old for the weight of a failure's chunk and pi_old / mu for the mask. mu
is the sampling engine's probability, stored at sampling and never recomputed; pi_old is the trainer's, under the weights
that sampled. With pi_prox, the train engine as the batch's updates began, [ours] `rho_c = w_c u_c`:

    w_c = exp mean over c of (log pi_prox - log b)          staleness, and with b = mu the engines' mismatch too
    u_c = exp mean over c of (log pi_theta - log pi_prox)   drift within the updates of one batch

    stored      b = mu        mask on w_c = pi_prox / mu
    snapshots   b = pi_old    mask on w_c = pi_prox / pi_old
    paper       b = pi_old    mask on pi_old / mu              Eqs. 8 and 9 as written

pi_old is computed again with the weights of the version that sampled the turn, which the learner keeps; with the current
weights every ratio would be 1. Shapes: B rows, T tokens, C chunks.
"""

from __future__ import annotations

from typing import Literal

import torch

from trainer.algo.terms.chunks import Chunks
from trainer.data.batch import TrainBatch

__all__ = ["Behaviour", "behaviour_ratios"]

Behaviour = Literal["stored", "snapshots", "paper"]


def behaviour_ratios(
    behaviour: Behaviour, batch: TrainBatch, logprobs_BT: torch.Tensor, chunks: Chunks
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the ratio that the mask compares, and rho, per chunk and without gradient (`Chunks.mean` detaches).

    NaN for a chunk with a token whose pi_old is not known. Raise `ValueError` where the mode needs `old_logprobs_BT` and
    the batch has none.
    """
    mu_BT, old_BT = batch.rollout_logprobs_BT, batch.old_logprobs_BT
    begun_BT = mu_BT if batch.fresh else logprobs_BT
    prox_BT = begun_BT if batch.prox_logprobs_BT is None else batch.prox_logprobs_BT
    base_BT = mu_BT
    if behaviour != "stored":
        if old_BT is None:
            raise ValueError(
                f"behaviour={behaviour!r} needs old_logprobs_BT in the batch, got None: whoever builds the batch must fill "
                "it with the log-probabilities under the weights that sampled each turn."
            )
        base_BT = old_BT
    log_w_C = chunks.mean(prox_BT - base_BT)
    log_u_C = chunks.mean(logprobs_BT - prox_BT)
    compared_C = chunks.mean(base_BT - mu_BT) if behaviour == "paper" else log_w_C
    return compared_C.exp(), (log_w_C + log_u_C).exp()
