"""Log-probabilities of chosen tokens, and entropies, without ever holding the logits of a whole row.

Used by `trainer.learners.torch_train`, for networks whose distribution is a softmax of logits.
Shapes: N tokens, D width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.utils.checkpoint import checkpoint

from trainer.learners.memory import HEAD_ELEMENTS

__all__ = ["token_logprobs", "token_scores"]

_LOWEST = -1e4


def token_logprobs(
    logits: Callable[[torch.Tensor], torch.Tensor],
    vocabulary: int,
    hidden_ND: torch.Tensor,
    targets_N: torch.Tensor,
) -> torch.Tensor:
    """Return log pi (`N`, float32) of each target after its hidden state; differentiable. As `token_scores`."""
    return token_scores(logits, vocabulary, hidden_ND, targets_N)[0]


def token_scores(
    logits: Callable[[torch.Tensor], torch.Tensor],
    vocabulary: int,
    hidden_ND: torch.Tensor,
    targets_N: torch.Tensor,
    *,
    temperature_N: torch.Tensor | None = None,
    entropy: bool = False,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return log pi (`N`, float32) of each target after its hidden state, and if asked the entropy (`N`, nats) of the
    distribution that it is one of; differentiable.

    `logits` maps final hidden states to logits (`NV`), which `temperature_N` divides. More than `HEAD_ELEMENTS` of them are
    computed piece by piece, and again in the backward pass.
    """

    def head(
        hidden_ND: torch.Tensor, targets_N: torch.Tensor, temperature_N: torch.Tensor | None
    ) -> tuple[torch.Tensor, ...]:
        logits_NV = logits(hidden_ND).float()
        if temperature_N is not None:
            logits_NV = logits_NV / temperature_N[:, None]
        logprobs_NV = torch.log_softmax(logits_NV, dim=-1)
        chosen_N = logprobs_NV.gather(1, targets_N[:, None])[:, 0]
        if not entropy:
            return (chosen_N,)
        # What a network rules out has the log-probability -inf and adds nothing.
        return chosen_N, -(logprobs_NV.exp() * logprobs_NV.clamp_min(_LOWEST)).sum(dim=-1)

    rows = max(1, HEAD_ELEMENTS // vocabulary)
    if len(targets_N) <= rows:
        found = head(hidden_ND, targets_N, temperature_N)
    else:
        splits = [torch.split(each, rows) for each in (hidden_ND, targets_N)]
        heats = [None] * len(splits[0]) if temperature_N is None else torch.split(temperature_N, rows)
        pieces = [checkpoint(head, *given, use_reentrant=False) for given in zip(*splits, heats, strict=True)]
        found = tuple(torch.cat(parts) for parts in zip(*pieces, strict=True))
    return found[0], found[1] if entropy else None
