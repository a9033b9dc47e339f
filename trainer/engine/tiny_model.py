"""A small decoder-only transformer, float32, from scratch: the policy behind `--model tiny`.

Pre-norm, learned absolute positions, fused qkv, ReLU MLP, untied head that starts at zero (a uniform policy).
Implements `trainer.engine.net.PolicyNet`. LayerNorm and ReLU, because on a CPU they cost a third of RMSNorm and GELU.
Shapes: B rows, T tokens, M picked positions of a row, D width, H heads, S cache slots, V vocabulary.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as fn

from rock_env.errors import InvalidArgument

__all__ = ["TinyModel", "TinyShape"]

_MLP_RATIO = 4
_EMBEDDING_STD = 0.5  # large against the blocks' output: which cell holds what must survive the first norm


@dataclass(frozen=True, slots=True)
class TinyShape:
    """What determines the parameters' shapes."""

    vocabulary: int
    layers: int
    width: int
    heads: int
    max_context: int

    def __post_init__(self) -> None:
        if self.width % self.heads:
            raise InvalidArgument(f"width must be a multiple of heads, got {self.width} and {self.heads}.")


class TinyCache:
    """Keys and values of every layer, with free slots to the right; rows are padded on the left."""

    def __init__(self, slots: int, mask_BT: torch.Tensor | None, position_B: torch.Tensor) -> None:
        self.keys: list[torch.Tensor] = []
        self.values: list[torch.Tensor] = []
        self.slots = slots
        self.used = 0
        self.position_B = position_B
        """Position of the next token."""
        self.mask_BS = None
        if mask_BT is not None:
            self.mask_BS = fn.pad(mask_BT, (0, slots - mask_BT.shape[1]), value=True)

    def add_layer(self, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Take the keys and values (`BHTd`) of the next layer's prompt."""
        room = self.slots - keys.shape[2]
        self.keys.append(fn.pad(keys, (0, 0, 0, room)))
        self.values.append(fn.pad(values, (0, 0, 0, room)))
        self.used = keys.shape[2]

    def keep(self, rows: torch.Tensor) -> None:
        """Replace the rows by the old rows `rows`: some dropped, some repeated."""
        self.keys = [keys[rows] for keys in self.keys]
        self.values = [values[rows] for values in self.values]
        self.position_B = self.position_B[rows]
        if self.mask_BS is not None:
            self.mask_BS = self.mask_BS[rows]


class _Block(nn.Module):
    """Attention and MLP of one layer, each on a normalised input and added to the stream."""

    def __init__(self, shape: TinyShape, generator: torch.Generator) -> None:
        super().__init__()
        width, hidden = shape.width, _MLP_RATIO * shape.width
        self.heads = shape.heads
        self.width = width
        shrink = 1.0 / math.sqrt(2 * shape.layers)  # 2 additions to the stream per layer
        self.norm1 = nn.Parameter(torch.ones(width))
        self.qkv = _normal(3 * width, width, std=width**-0.5, generator=generator)
        self.out = _normal(width, width, std=shrink * width**-0.5, generator=generator)
        self.norm2 = nn.Parameter(torch.ones(width))
        self.up = _normal(hidden, width, std=width**-0.5, generator=generator)
        self.up_bias = nn.Parameter(torch.zeros(hidden))
        self.down = _normal(width, hidden, std=shrink * hidden**-0.5, generator=generator)
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
        *,
        causal: bool = False,
    ) -> torch.Tensor:
        """Attend (`mask` True: may look) and return the stream after this layer."""
        mixed = fn.scaled_dot_product_attention(*qkv, attn_mask=mask, is_causal=causal)
        x_BMD = x_BMD + fn.linear(mixed.transpose(1, 2).reshape(x_BMD.shape), self.out)
        hidden = fn.relu(
            fn.linear(fn.layer_norm(x_BMD, (self.width,), self.norm2), self.up, self.up_bias), inplace=True
        )
        return x_BMD + fn.linear(hidden, self.down, self.down_bias)

    def _split(self, x_BTD: torch.Tensor) -> torch.Tensor:
        return x_BTD.view(x_BTD.shape[0], x_BTD.shape[1], self.heads, -1).transpose(1, 2)


class TinyModel(nn.Module):
    """The network. The same seed gives the same parameters, whatever else used torch's random numbers."""

    def __init__(self, shape: TinyShape, seed: int = 0) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.shape = shape
        self.vocabulary = shape.vocabulary
        self.max_context = shape.max_context
        self.embedding = _normal(shape.vocabulary, shape.width, std=_EMBEDDING_STD, generator=generator)
        self.position = _normal(shape.max_context, shape.width, std=_EMBEDDING_STD, generator=generator)
        self._layers = tuple(_Block(shape, generator) for _ in range(shape.layers))
        self.blocks = nn.ModuleList(self._layers)
        self.norm = nn.Parameter(torch.ones(shape.width))
        self.head = nn.Parameter(torch.zeros(shape.vocabulary, shape.width))

    def hidden_at(self, tokens_BT: torch.Tensor, at_BM: torch.Tensor) -> torch.Tensor:
        """Return the final hidden states (`BMD`) at `at_BM` of right-padded rows.

        The last layer computes queries and MLP at those positions only. Padding lies to the right of every position
        that is asked for, so the causal mask alone hides it.
        """
        width = tokens_BT.shape[1]
        x = fn.embedding(tokens_BT, self.embedding) + self.position[:width]
        for block in self._layers[:-1]:
            x, q, k, v = block.project(x, None)
            x = block.finish(x, (q, k, v), None, causal=True)
        last = self._layers[-1]
        x, q, k, v = last.project(x, at_BM)
        visible_BMT = torch.arange(width, device=at_BM.device) <= at_BM[:, :, None]
        x = last.finish(x, (q, k, v), visible_BMT[:, None])
        return fn.layer_norm(x, (self.shape.width,), self.norm)

    def logits(self, hidden_ND: torch.Tensor) -> torch.Tensor:
        """Return the logits (`NV`) of final hidden states."""
        return fn.linear(hidden_ND, self.head)

    def prefill(
        self, tokens_BT: torch.Tensor, mask_BT: torch.Tensor | None, *, room: int
    ) -> tuple[torch.Tensor, TinyCache]:
        """Return the next token's logits (`BV`) after left-padded rows, and the cache."""
        rows, width = tokens_BT.shape
        full = None
        if mask_BT is None:
            x = fn.embedding(tokens_BT, self.embedding) + self.position[:width]
            cache = TinyCache(width + room, None, torch.full((rows,), width))
        else:
            position_BT = (mask_BT.long().cumsum(1) - 1).clamp_min(0)
            x = fn.embedding(tokens_BT, self.embedding) + fn.embedding(position_BT, self.position)
            cache = TinyCache(width + room, mask_BT, mask_BT.sum(1))
            causal_TT = torch.ones(width, width, dtype=torch.bool).tril()
            itself_TT = torch.eye(width, dtype=torch.bool)  # padding sees itself: a row of -inf would be NaN
            full = (causal_TT & mask_BT[:, None, :] | itself_TT)[:, None]
        for block in self._layers[:-1]:
            x, q, k, v = block.project(x, None)
            cache.add_layer(k, v)
            x = block.finish(x, (q, k, v), full, causal=full is None)
        last = self._layers[-1]
        x, q, k, v = last.project(x, torch.full((rows, 1), width - 1))
        cache.add_layer(k, v)
        x = last.finish(x, (q, k, v), None if mask_BT is None else mask_BT[:, None, None, :])
        return self.logits(fn.layer_norm(x[:, 0], (self.shape.width,), self.norm)), cache

    def decode(self, tokens_B: torch.Tensor, cache: TinyCache) -> torch.Tensor:
        """Append one token to every row and return the next token's logits (`BV`).

        Rows that have ended may be decoded on; their positions stop at the last one the model knows.
        """
        place_B = cache.position_B.clamp_max(self.max_context - 1)
        x = (fn.embedding(tokens_B, self.embedding) + fn.embedding(place_B, self.position))[:, None]
        used = cache.used + 1
        mask = None if cache.mask_BS is None else cache.mask_BS[:, None, None, :used]
        for block, keys, values in zip(self._layers, cache.keys, cache.values, strict=True):
            x, q, k, v = block.project(x, None)
            keys[:, :, used - 1] = k[:, :, 0]
            values[:, :, used - 1] = v[:, :, 0]
            x = block.finish(x, (q, keys[:, :, :used], values[:, :, :used]), mask)
        cache.used = used
        cache.position_B = cache.position_B + 1
        return self.logits(fn.layer_norm(x[:, 0], (self.shape.width,), self.norm))


def _normal(rows: int, columns: int, *, std: float, generator: torch.Generator) -> nn.Parameter:
    return nn.Parameter(torch.randn(rows, columns, generator=generator) * std)
