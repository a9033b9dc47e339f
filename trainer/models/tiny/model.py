"""A small decoder-only transformer, float32, from scratch: the policy behind `--model tiny`.

Pre-norm, fused qkv, ReLU MLP, untied head that starts at zero (a uniform policy). Two things make it see text as a page:
a token's place is its line in the message and its column in the line (learned embeddings of both; one for the absolute
position, which starts at zero), and the tokens of a user's message attend to the whole message, in both directions. On 200
slippery FrozenLake maps that cut the error on unseen maps from 11 % to 2 % at equal cost. What is sampled stays causal.
Implements `trainer.protocols.net.PolicyNet`. LayerNorm and ReLU, because on a CPU they cost a third of RMSNorm and GELU.
Shapes: B rows, T tokens, M picked positions of a row, D width, H heads, S cache slots, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as fn

from rock_env.errors import InvalidArgument
from trainer.models.block import Block, normal
from trainer.models.tiny.tokenizer import END, NEWLINE, SPECIALS, USER

__all__ = ["TinyModel", "TinyShape"]

_LINES, _COLUMNS = 64, 128  # beyond, places are not told apart by line or column
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


class _Page:
    """Where each token of some rows stands, and what it may look at; a function of the token ids alone."""

    def __init__(self, tokens_BT: torch.Tensor) -> None:
        special_BT, newline_BT = tokens_BT < SPECIALS, tokens_BT == NEWLINE
        index_T = torch.arange(tokens_BT.shape[1], device=tokens_BT.device)
        opener_BT = torch.where(special_BT, index_T, 0).cummax(1).values
        start_BT = torch.where(special_BT | newline_BT, index_T, 0).cummax(1).values
        before_BT = newline_BT.long().cumsum(1) - newline_BT.long()
        self.line_BT = (before_BT - before_BT.gather(1, opener_BT)).clamp_max(_LINES - 1)
        self.column_BT = (index_T - start_BT).clamp_max(_COLUMNS - 1)
        message_BT = torch.where(tokens_BT.gather(1, opener_BT) == USER, opener_BT, -1)
        same_BTT = (message_BT[:, :, None] == message_BT[:, None, :]) & (message_BT >= 0)[:, :, None]
        self.visible_BTT = same_BTT | (index_T[None, :] <= index_T[:, None])
        """[b, t, s]: may token t look at token s."""
        self.after_newline_B = newline_BT[:, -1].long()


class TinyCache:
    """Keys and values of every layer, with free slots to the right; rows are padded on the left."""

    def __init__(
        self, slots: int, mask_BT: torch.Tensor | None, position_B: torch.Tensor, page: _Page
    ) -> None:
        self.keys: list[torch.Tensor] = []
        self.values: list[torch.Tensor] = []
        self.slots = slots
        self.used = 0
        self.position_B = position_B
        """Position of the next token."""
        self.line_B = page.line_BT[:, -1]
        self.column_B = page.column_BT[:, -1]
        """Line and column of the newest token."""
        self.after_newline_B = page.after_newline_B
        """1 where the newest token is a newline: the next one begins a line."""
        self.mask_BS = None
        if mask_BT is not None:
            self.mask_BS = fn.pad(mask_BT, (0, slots - mask_BT.shape[1]), value=True)

    def add_layer(self, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Take the keys and values (`BHTd`) of the next layer's prompt."""
        room = self.slots - keys.shape[2]
        self.keys.append(fn.pad(keys, (0, 0, 0, room)))
        self.values.append(fn.pad(values, (0, 0, 0, room)))
        self.used = keys.shape[2]

    def advance(self, tokens_B: torch.Tensor) -> None:
        """Move to the places of the tokens that come next, as `_Page` would number them."""
        newline_B, special_B = tokens_B == NEWLINE, tokens_B < SPECIALS
        self.line_B = torch.where(special_B, 0, self.line_B + self.after_newline_B).clamp_max(_LINES - 1)
        self.column_B = torch.where(newline_B | special_B, 0, self.column_B + 1).clamp_max(_COLUMNS - 1)
        self.after_newline_B = newline_B.long()

    def keep(self, rows: torch.Tensor) -> None:
        """Replace the rows by the old rows `rows`: some dropped, some repeated."""
        self.keys = [keys[rows] for keys in self.keys]
        self.values = [values[rows] for values in self.values]
        self.position_B = self.position_B[rows]
        self.line_B, self.column_B = self.line_B[rows], self.column_B[rows]
        self.after_newline_B = self.after_newline_B[rows]
        if self.mask_BS is not None:
            self.mask_BS = self.mask_BS[rows]


class TinyModel(nn.Module):
    """The network. The same seed gives the same parameters, whatever else used torch's random numbers."""

    def __init__(self, shape: TinyShape, seed: int = 0) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.shape = shape
        self.vocabulary = shape.vocabulary
        self.max_context = shape.max_context
        self.width = shape.width
        self.embedding = normal(shape.vocabulary, shape.width, std=_EMBEDDING_STD, generator=generator)
        self.line = normal(_LINES, shape.width, std=_EMBEDDING_STD, generator=generator)
        self.column = normal(_COLUMNS, shape.width, std=_EMBEDDING_STD, generator=generator)
        self.position = nn.Parameter(torch.zeros(shape.max_context, shape.width))
        self._layers = tuple(
            Block(shape.width, shape.heads, shape.layers, generator) for _ in range(shape.layers)
        )
        self.blocks = nn.ModuleList(self._layers)
        self.norm = nn.Parameter(torch.ones(shape.width))
        self.head = nn.Parameter(torch.zeros(shape.vocabulary, shape.width))

    def hidden_at(self, tokens_BT: torch.Tensor, at_BM: torch.Tensor) -> torch.Tensor:
        """Return the final hidden states (`BMD`) at `at_BM` of right-padded rows.

        The last layer computes queries and MLP at those positions only. Padding lies to the right and is no part of any
        message, so nothing that is asked for sees it.
        """
        page = _Page(tokens_BT)
        position_T = torch.arange(tokens_BT.shape[1], device=tokens_BT.device)
        x = self._embed(tokens_BT, position_T, page.line_BT, page.column_BT)
        visible = page.visible_BTT[:, None]
        for block in self._layers[:-1]:
            x, q, k, v = block.project(x, None)
            x = block.finish(x, (q, k, v), visible)
        last = self._layers[-1]
        x, q, k, v = last.project(x, at_BM)
        index_BMT = at_BM[:, :, None].expand(-1, -1, tokens_BT.shape[1])
        x = last.finish(x, (q, k, v), page.visible_BTT.gather(1, index_BMT)[:, None])
        return fn.layer_norm(x, (self.shape.width,), self.norm)

    def logits(self, hidden_ND: torch.Tensor) -> torch.Tensor:
        """Return the logits (`NV`) of final hidden states; the special tokens before `END` are impossible.

        A policy that could sample the opening of a user's message would see its own future in training.
        """
        logits_NV = fn.linear(hidden_ND, self.head)
        never = torch.arange(self.vocabulary, device=logits_NV.device) < END
        return logits_NV.masked_fill(never, -torch.inf)

    def prefill(
        self, tokens_BT: torch.Tensor, mask_BT: torch.Tensor | None, *, room: int
    ) -> tuple[torch.Tensor, TinyCache]:
        """Return the next token's logits (`BV`) after left-padded rows, and the cache."""
        rows, width = tokens_BT.shape
        page = _Page(tokens_BT)
        visible_BTT = page.visible_BTT
        if mask_BT is None:
            position_BT = torch.arange(width, device=tokens_BT.device).expand(rows, -1)
            cache = TinyCache(width + room, None, torch.full((rows,), width), page)
        else:
            position_BT = (mask_BT.long().cumsum(1) - 1).clamp_min(0)
            cache = TinyCache(width + room, mask_BT, mask_BT.sum(1), page)
            itself_TT = torch.eye(width, dtype=torch.bool)  # padding sees itself: a row of -inf would be NaN
            visible_BTT = visible_BTT & mask_BT[:, None, :] | itself_TT
        x = self._embed(tokens_BT, position_BT, page.line_BT, page.column_BT)
        for block in self._layers[:-1]:
            x, q, k, v = block.project(x, None)
            cache.add_layer(k, v)
            x = block.finish(x, (q, k, v), visible_BTT[:, None])
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
        cache.advance(tokens_B)
        x = self._embed(tokens_B, place_B, cache.line_B, cache.column_B)[:, None]
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

    def _embed(
        self, tokens: torch.Tensor, position: torch.Tensor, line: torch.Tensor, column: torch.Tensor
    ) -> torch.Tensor:
        page = fn.embedding(line, self.line) + fn.embedding(column, self.column)
        return fn.embedding(tokens, self.embedding) + fn.embedding(position, self.position) + page
