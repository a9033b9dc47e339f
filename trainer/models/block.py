"""One layer of the small transformers that train from scratch, `tiny` and `coder`: pre-norm, fused qkv, ReLU MLP.

Shapes: B rows, T tokens, M picked positions of a row, D width, H heads, d width of a head.
"""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional as fn

__all__ = ["Block", "normal"]

_MLP_RATIO = 4


class Block(nn.Module):
    """Attention and MLP of one layer, each on a normalised input and added to the stream."""

    def __init__(self, width: int, heads: int, layers: int, generator: torch.Generator) -> None:
        """Draw a layer of a network of so many `layers`."""
        super().__init__()
        hidden = _MLP_RATIO * width
        self.heads = heads
        self.width = width
        shrink = 1.0 / math.sqrt(2 * layers)  # 2 additions to the stream per layer
        self.norm1 = nn.Parameter(torch.ones(width))
        self.qkv = normal(3 * width, width, std=width**-0.5, generator=generator)
        self.out = normal(width, width, std=shrink * width**-0.5, generator=generator)
        self.norm2 = nn.Parameter(torch.ones(width))
        self.up = normal(hidden, width, std=width**-0.5, generator=generator)
        self.up_bias = nn.Parameter(torch.zeros(hidden))
        self.down = normal(width, hidden, std=shrink * hidden**-0.5, generator=generator)
        self.down_bias = nn.Parameter(torch.zeros(width))

    def project(
        self, x_BTD: torch.Tensor, at_BM: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return the stream and queries at `at_BM` (None: everywhere), keys and values everywhere (`BHTd`)."""
        normed_BTD = fn.layer_norm(x_BTD, (self.width,), self.norm1)
        if at_BM is None:
            q, k, v = fn.linear(normed_BTD, self.qkv).chunk(3, dim=-1)
        else:
            index_BMD = at_BM[:, :, None].expand(-1, -1, self.width)
            k, v = fn.linear(normed_BTD, self.qkv[self.width :]).chunk(2, dim=-1)
            q = fn.linear(normed_BTD.gather(1, index_BMD), self.qkv[: self.width])
            x_BTD = x_BTD.gather(1, index_BMD)
        return x_BTD, self._split(q), self._split(k), self._split(v)

    def finish(
        self,
        x_BMD: torch.Tensor,
        qkv: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
        mask: torch.Tensor | None,
    ) -> torch.Tensor:
        """Attend (`mask` True: may look) and return the stream after this layer."""
        mixed = fn.scaled_dot_product_attention(*qkv, attn_mask=mask)
        x_BMD = x_BMD + fn.linear(mixed.transpose(1, 2).reshape(x_BMD.shape), self.out)
        hidden = fn.relu(
            fn.linear(fn.layer_norm(x_BMD, (self.width,), self.norm2), self.up, self.up_bias), inplace=True
        )
        return x_BMD + fn.linear(hidden, self.down, self.down_bias)

    def _split(self, x_BTD: torch.Tensor) -> torch.Tensor:
        return x_BTD.view(x_BTD.shape[0], x_BTD.shape[1], self.heads, -1).transpose(1, 2)


def normal(rows: int, columns: int, *, std: float, generator: torch.Generator) -> nn.Parameter:
    """Return a matrix drawn from a normal distribution around 0."""
    return nn.Parameter(torch.randn(rows, columns, generator=generator) * std)
