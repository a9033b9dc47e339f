"""Log-probabilities of chosen tokens, without ever holding the logits of a whole row.

Used by `trainer.learners.torch_train`, for networks whose distribution is a softmax of logits.
Shapes: N tokens, D width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.utils.checkpoint import checkpoint

from trainer.learners.memory import HEAD_ELEMENTS

__all__ = ["token_logprobs"]


def token_logprobs(
    logits: Callable[[torch.Tensor], torch.Tensor],
    vocabulary: int,
    hidden_ND: torch.Tensor,
    targets_N: torch.Tensor,
) -> torch.Tensor:
    """Return log pi (`N`, float32) of each target after its hidden state; differentiable.

    `logits` maps final hidden states to logits (`NV`). More than `HEAD_ELEMENTS` of them are computed piece by piece, and
    again in the backward pass.
    """

    def head(hidden_ND: torch.Tensor, targets_N: torch.Tensor) -> torch.Tensor:
        logprobs_NV = torch.log_softmax(logits(hidden_ND).float(), dim=-1)
        return logprobs_NV.gather(1, targets_N[:, None])[:, 0]

    rows = max(1, HEAD_ELEMENTS // vocabulary)
    if len(targets_N) <= rows:
        return head(hidden_ND, targets_N)
    pieces = [
        checkpoint(head, hidden, targets, use_reentrant=False)
        for hidden, targets in zip(torch.split(hidden_ND, rows), torch.split(targets_N, rows), strict=True)
    ]
    return torch.cat(pieces)
