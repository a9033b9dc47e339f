"""Corrections for tokens that another policy sampled: how much each counts, given its ratio to the sampler.

Part of every algorithm that takes the option `correction`; pure. With `mu` the probability stored at sampling and `w` the
ratio `pi_prox / mu` of one token (`pi_theta / mu` in algorithms without a ratio of their own, such as REINFORCE):

    tis        min(W, high)                    truncated importance sampling: bounded variance, some bias
    mis        W if W <= high else 0           masked importance sampling: what cannot be corrected is left out
    icepop     w if low <= w <= high else 0    a band at the level of tokens, both sides
    geometric  1 if low <= g <= high else 0    rejection by the geometric mean g, whatever the length; no weight

    W = w for `_token`, the product of w over the unit for `_chunk` (one turn) and `_sequence` (the whole trajectory)

Sources: TIS per token, Ionides 2008 and the FlashRL note of Yao et al. 2025; TIS and MIS per sequence, Liu et al. 2025,
"When Speed Kills Stability"; IcePop, arXiv 2510.18855, bounds included; geometric rejection, the rollout correction of verl.
The bound 2 is the one in use for TIS and MIS, the band of `geometric` is ours. A correction never changes a divisor: what it
leaves out never re-inflates the rest [ours].

An algorithm with a ratio of its own then takes it against pi_prox, not mu, or `pi_prox / mu` would count twice.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple, Self

import torch
from pydantic import NonNegativeFloat, model_validator

from trainer.algo.base import AlgoOptions, Metric, OffPolicy
from trainer.algo.terms.chunks import chunks_of
from trainer.algo.terms.loss import keep, mean_metric
from trainer.data.batch import TrainBatch

__all__ = ["CORRECTED", "Correction", "CorrectionOptions", "correction_weight"]

Correction = Literal[
    "none",
    "tis_token",
    "tis_chunk",
    "tis_sequence",
    "mis_token",
    "mis_chunk",
    "mis_sequence",
    "icepop",
    "geometric_chunk",
    "geometric_sequence",
]


class _Kind(NamedTuple):
    """What a correction's name stands for, with the upper bound that holds unless another is given."""

    unit: Literal["token", "chunk", "sequence"]
    shape: Literal["truncate", "mask", "band", "reject"]
    high: float


_KINDS: dict[Correction, _Kind] = {
    "tis_token": _Kind("token", "truncate", 2),
    "tis_chunk": _Kind("chunk", "truncate", 2),
    "tis_sequence": _Kind("sequence", "truncate", 2),
    "mis_token": _Kind("token", "mask", 2),
    "mis_chunk": _Kind("chunk", "mask", 2),
    "mis_sequence": _Kind("sequence", "mask", 2),
    "icepop": _Kind("token", "band", 5),
    "geometric_chunk": _Kind("chunk", "reject", 2),
    "geometric_sequence": _Kind("sequence", "reject", 2),
}


class CorrectionOptions(AlgoOptions):
    """How much a token counts that the present policy did not sample."""

    correction: Correction = "none"
    """What is done about tokens that an older policy or another engine sampled (`trainer/algo/terms/corrections.py`)."""
    correction_high: NonNegativeFloat = 0.0
    """Upper bound of the ratio; 0 takes the correction's usual one: 2 (`icepop`: 5). `inf` bounds nothing."""
    correction_low: NonNegativeFloat = 0.5
    """Lower bound, for `icepop` and `geometric_*` only."""

    @model_validator(mode="after")
    def _no_dead_bound(self) -> Self:
        # By value, not by what was given: a run's record holds every option.
        usual = {name: field.default for name, field in type(self).model_fields.items()}
        if self.correction == "none" and self.correction_high != usual["correction_high"]:
            raise ValueError(
                f"correction_high={self.correction_high:g} has no effect with correction='none': set correction"
            )
        banded = self.correction.startswith(("icepop", "geometric"))
        if not banded and self.correction_low != usual["correction_low"]:
            raise ValueError(
                f"correction_low={self.correction_low:g} has no effect with correction={self.correction!r}: "
                "use 'icepop' or 'geometric_*'"
            )
        if banded and self.correction_low > self.correction_bound:
            raise ValueError(
                f"correction_low must not exceed correction_high, got {self.correction_low:g} and "
                f"{self.correction_bound:g}: swap them"
            )
        return self

    @property
    def correction_bound(self) -> float:
        """Return the upper bound of a correction that is not `none`, as given or as usual for it."""
        return self.correction_high or _KINDS[self.correction].high

    @property
    def credit_chunk_turns(self) -> int:
        """Return the turns of a chunk in this algorithm's credit: 1, or 0 (all) where sequences are corrected."""
        return 0 if self.correction.endswith("_sequence") else 1


CORRECTED = OffPolicy(lambda options: 0 if options.correction == "none" else math.inf, "correction")
"""Of algorithms that measure nothing against the sampler without a `correction`."""


def correction_weight(
    options: CorrectionOptions, batch: TrainBatch, log_w_BT: torch.Tensor
) -> tuple[torch.Tensor, dict[str, Metric]]:
    """Return the weight of every token, detached, and its metrics; for any correction but `none`.

    `log_w_BT` is log w, read where `loss_mask_BT` is True. Units are the batch's chunks, which the microbatches never
    cut: the algorithm's credit must have been made with `credit_chunk_turns`.
    """
    log_w_BT = keep(log_w_BT.detach(), batch.loss_mask_BT)
    kind = _KINDS[options.correction]
    low = options.correction_low if kind.shape in ("band", "reject") else 0.0
    high = options.correction_bound
    if kind.unit == "token":
        w_BT = log_w_BT.exp()
    else:
        chunks = chunks_of(batch)
        log_C = chunks.mean(log_w_BT) if kind.shape == "reject" else chunks.total(log_w_BT)
        w_BT = chunks.spread(log_C.exp())
    if kind.shape == "truncate":
        weight_BT = w_BT.clamp(max=high)
    else:
        kept_BT = (w_BT >= low) & (w_BT <= high)
        weight_BT = torch.where(kept_BT, 1.0 if kind.shape == "reject" else w_BT, 0.0)
    return weight_BT, {"correction/weight": mean_metric(weight_BT, batch.loss_mask_BT)}
