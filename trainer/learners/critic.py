"""The value head: what the policy network's last state says of the return to come. Used by `torch_train` only.

It reads the state and sends no gradient into it: the policy is moved by its own loss alone, and sampling needs no head.
Shapes: N states, D width of the policy network, U units.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as fn

__all__ = ["ValueHead"]

_UNITS = 256
"""Wide enough for a curve through what the network knows, and small beside any of them."""


class ValueHead(nn.Module):
    """Norm, one hidden layer, a number, in float32. It begins at 0 everywhere; the same seed gives the same parameters."""

    def __init__(self, width: int, seed: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.width = width
        self.inner = nn.Parameter(torch.randn(_UNITS, width, generator=generator) * width**-0.5)
        self.inner_bias = nn.Parameter(torch.zeros(_UNITS))
        self.outer = nn.Parameter(torch.zeros(1, _UNITS))
        self.outer_bias = nn.Parameter(torch.zeros(1))

    def forward(self, hidden_ND: torch.Tensor) -> torch.Tensor:
        """Return V (`N`) of final hidden states; differentiable by the head's parameters only."""
        normed_ND = fn.layer_norm(hidden_ND.detach().float(), (self.width,))
        inner_NU = fn.relu(fn.linear(normed_ND, self.inner, self.inner_bias))
        return fn.linear(inner_NU, self.outer, self.outer_bias)[:, 0]
