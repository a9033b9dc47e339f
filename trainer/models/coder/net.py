"""The coder's network: a small transformer that points. Float32, from scratch.

What makes few trajectories enough: the words of a shown message see the whole message, in both directions, and their
neighbours by a short convolution; names are slots, so that only what is done with them counts; flags say which words the
other messages mention; rotary positions count words and messages. An answer's choice is over a few allowed tokens and over
places in the prompt (a pointer network, Vinyals et al. 2015, where equal names add up as in Kadlec et al. 2016, and with
`clues`, among them See et al. 2017's coverage: how often an earlier answer pointed there). A pointer, once chosen, carries
the state of its place.
Shapes: B rows, T units, S slots of keys, N choices, V spelled tokens, D width, H heads.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional as fn

from rock_env.errors import InvalidArgument
from trainer.models.block import Block, normal
from trainer.models.coder.choices import Choices
from trainer.models.coder.page import FLAGS, SLOTS, FileKind, Page
from trainer.models.coder.words import PAD, TEXT, CoderWords

__all__ = ["CoderNet", "CoderShape", "Features", "Memory", "features", "visible"]

_LINES, _COLUMNS, _INDENTS = 80, 48, 10  # beyond, places are not told apart
_AROUND = (-2, -1, 1, 2)
_POINTER_KIND = 4
_KINDS = 5
_TOLD_KINDS = _KINDS + len(FileKind) - 1
_ROTARY_BASE = 2000.0
_TEXT_PRIOR = -6.0
"""Added to the score of an answer in words: who has hardly seen one must be sure before it begins one."""


@dataclass(frozen=True, slots=True)
class CoderShape:
    """What determines the parameters' shapes, beside the tokenizer."""

    layers: int
    width: int
    heads: int
    max_context: int

    def __post_init__(self) -> None:
        if self.width % (4 * self.heads):
            raise InvalidArgument(
                f"width must be a multiple of 4 * heads, got {self.width} and {self.heads}."
            )
        if self.layers < 2:
            raise InvalidArgument(f"a coder needs at least 2 layers, got {self.layers}.")


@dataclass(frozen=True, slots=True, eq=False)
class Features:
    """What the network is told of each unit of some rows (`BW`, int64)."""

    piece: torch.Tensor
    kind: torch.Tensor
    flags: torch.Tensor
    line: torch.Tensor
    column: torch.Tensor
    indent: torch.Tensor
    message: torch.Tensor
    """Number of the message in the row."""
    place: torch.Tensor
    """Number of the unit in the row."""
    pointed: torch.Tensor
    """The unit a pointer points to, else -1."""
    user: torch.Tensor
    """Bool: in a message shown to the model."""


_FILL = {"piece": PAD, "kind": 3, "pointed": -1}


def features(pages: list[Page], words: CoderWords, *, first: list[int], width: int) -> Features:
    """Return the features of each page's units from `first[b]` on, padded on the right to `width`."""
    names = [each.name for each in fields(Features)]
    out = {name: np.full((len(pages), width), _FILL.get(name, 0), np.int64) for name in names}
    for b, page in enumerate(pages):
        at = page.at_W[first[b] :]
        target = page.ids[at].astype(np.int64) - words.size
        points = target >= 0
        where = np.where(points, target, at)
        seen = page.ids[where]
        word = page.word_T[where]
        count = slice(0, len(at))
        file = page.file_T[where]
        kind = np.where(file > 0, _KINDS - 1 + file, words.kind_V[seen])
        out["piece"][b, count] = np.where(word > 0, words.rows + word - 1, words.piece_V[seen])
        out["kind"][b, count] = np.where(points, _POINTER_KIND, kind)
        out["flags"][b, count] = page.flags_T[where]
        out["line"][b, count] = np.minimum(page.line_T[where], _LINES - 1)
        out["column"][b, count] = np.minimum(page.column_T[where], _COLUMNS - 1)
        out["indent"][b, count] = np.minimum(page.indent_T[where] // 2, _INDENTS - 1)
        out["message"][b, count] = page.message_T[at]
        out["place"][b, count] = page.unit_T[at]
        out["pointed"][b, count] = np.where(points, page.unit_T[where], -1)
        out["user"][b, count] = page.user_T[at]
    tensors = {name: torch.from_numpy(value) for name, value in out.items()}
    return Features(**{**tensors, "user": tensors["user"].bool()})


@dataclass(slots=True, eq=False)
class Memory:
    """What later tokens of some rows need of earlier ones. `length` tokens of each row are filled."""

    keys: list[torch.Tensor]
    values: list[torch.Tensor]
    """Per layer, `BHSd`."""
    inner: torch.Tensor
    """States after the first layer (`BSD`): what a pointer carries."""
    marks: torch.Tensor
    """Keys of the pointer head (`BSD`)."""

    @staticmethod
    def empty(shape: CoderShape, rows: int, slots: int) -> Memory:
        """Return room for `slots` tokens of `rows` rows."""
        each = (rows, shape.heads, slots, shape.width // shape.heads)
        return Memory(
            keys=[torch.zeros(each) for _ in range(shape.layers)],
            values=[torch.zeros(each) for _ in range(shape.layers)],
            inner=torch.zeros(rows, slots, shape.width),
            marks=torch.zeros(rows, slots, shape.width),
        )

    def copy_row(self, row: int, source: Memory, source_row: int, length: int) -> None:
        """Take the first `length` tokens of another memory's row."""
        for mine, theirs in zip([*self.keys, *self.values], [*source.keys, *source.values], strict=True):
            mine[row, :, :length] = theirs[source_row, :, :length]
        self.inner[row, :length] = source.inner[source_row, :length]
        self.marks[row, :length] = source.marks[source_row, :length]


class CoderNet(nn.Module):
    """The network. The same seed gives the same parameters, whatever else used torch's random numbers."""

    def __init__(self, words: CoderWords, shape: CoderShape, seed: int = 0) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.words, self.shape = words, shape
        self.vocabulary, self.max_context = words.size, shape.max_context
        self.width = width = shape.width
        self.piece = normal(words.rows + SLOTS, width, std=0.5, generator=generator)
        self.kind = normal(_TOLD_KINDS, width, std=0.2, generator=generator)
        self.flag = normal(1 << FLAGS, width, std=0.2, generator=generator)
        self.indent = normal(_INDENTS, width, std=0.2, generator=generator)
        self.line = normal(_LINES, width, std=0.2, generator=generator)
        self.column = normal(_COLUMNS, width, std=0.2, generator=generator)
        self.around = normal(width, len(_AROUND) * width, std=0.25 * width**-0.5, generator=generator)
        self.carry = normal(width, width, std=width**-0.5, generator=generator)
        self._layers = tuple(Block(width, shape.heads, shape.layers, generator) for _ in range(shape.layers))
        self.blocks = nn.ModuleList(self._layers)
        self.mark_norm = nn.Parameter(torch.ones(width))
        self.mark = normal(width, width, std=width**-0.5, generator=generator)
        self.norm = nn.Parameter(torch.ones(width))
        self.spell_piece = nn.Parameter(torch.zeros(words.rows, width))
        self.spell_kind = nn.Parameter(torch.zeros(_KINDS, width))
        self.ask = nn.Parameter(torch.zeros(Choices.POINTERS, width, width))
        self.clues = nn.Parameter(torch.zeros(Choices.CLUES))
        """Added to the score of a place by each of the `Choices.clues_CNS`."""
        self._prior_V = torch.zeros(words.size)
        self._prior_V[TEXT] = _TEXT_PRIOR
        self._piece_V = torch.from_numpy(words.piece_V)
        self._kind_V = torch.from_numpy(words.kind_V)

    # -- the two ways through -----------------------------------------------------------------------------------

    def read(self, rows: Features, mask_BTT: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the final states (`BTD`) and pointer keys (`BTD`) of whole rows; differentiable."""
        x = self._embed(rows)
        cos, sin = self._rotary(rows)
        mask = mask_BTT[:, None]
        marks = x
        for number, block in enumerate(self._layers):
            if number == 1:
                x = self._carry(x, rows, x)
            if number == len(self._layers) - 1:
                marks = self._marks(x)
            _, q, k, v = block.project(x, None)
            x = block.finish(x, (_turn(q, cos, sin), _turn(k, cos, sin), v), mask)
        return fn.layer_norm(x, (self.shape.width,), self.norm), marks

    def go_on(
        self, rows: Features, mask_BTS: torch.Tensor, memory: Memory, slot_BT: torch.Tensor
    ) -> torch.Tensor:
        """Append tokens to the memory at `slot_BT` (`S` itself: nowhere) and return their final states (`BTD`)."""
        x = self._embed(rows)
        cos, sin = self._rotary(rows)
        row_BT = torch.arange(len(slot_BT))[:, None].expand_as(slot_BT)
        real = slot_BT < memory.inner.shape[1]
        at = (row_BT[real], slot_BT[real])
        mask = mask_BTS[:, None]
        for number, block in enumerate(self._layers):
            if number == 1:
                memory.inner[at] = x[real]
                x = self._carry(x, rows, memory.inner)
            if number == len(self._layers) - 1:
                memory.marks[at] = self._marks(x)[real]
            _, q, k, v = block.project(x, None)
            keys, values = memory.keys[number], memory.values[number]
            keys[at[0], :, at[1]] = _turn(k, cos, sin).transpose(1, 2)[real]
            values[at[0], :, at[1]] = v.transpose(1, 2)[real]
            x = block.finish(x, (_turn(q, cos, sin), keys, values), mask)
        final: torch.Tensor = fn.layer_norm(x, (self.shape.width,), self.norm)
        return final

    # -- choices ------------------------------------------------------------------------------------------------

    def asked(self, hidden_ND: torch.Tensor, choices: Choices) -> torch.Tensor:
        """Return what each choice looks for among the pointer keys (`ND`)."""
        asked_ND = torch.zeros_like(hidden_ND)
        for way in range(Choices.POINTERS):
            chosen = (choices.pointer_N == way)[:, None]
            asked_ND = torch.where(chosen, fn.linear(hidden_ND, self.ask[way]), asked_ND)
        return asked_ND / math.sqrt(self.shape.width)

    def scores(
        self, hidden_ND: torch.Tensor, found_NS: torch.Tensor, choices: Choices
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the scores of spelled tokens (`NV`) and of places in the prompt (`NS`); what may not be is -inf.

        `found_NS` is the product of `asked` and the pointer keys of each choice's row.
        """
        piece_NP, kind_NK = fn.linear(hidden_ND, self.spell_piece), fn.linear(hidden_ND, self.spell_kind)
        spelled_NV = piece_NP[:, self._piece_V] + kind_NK[:, self._kind_V] + self._prior_V
        spelled_NV = spelled_NV.masked_fill(~choices.spelled_NV, -torch.inf)
        places_NS = found_NS + torch.einsum("c,cns->ns", self.clues, choices.clues_CNS)
        return spelled_NV, places_NS.masked_fill(~choices.places_NS, -torch.inf)

    # -- inside -------------------------------------------------------------------------------------------------

    def _embed(self, rows: Features) -> torch.Tensor:
        x = fn.embedding(rows.piece, self.piece) + fn.embedding(rows.kind, self.kind)
        x = x + fn.embedding(rows.flags, self.flag)
        page = fn.embedding(rows.line, self.line) + fn.embedding(rows.column, self.column)
        page = page + fn.embedding(rows.indent, self.indent)
        neighbours = []
        for offset in _AROUND:
            moved = torch.roll(x, -offset, dims=1)
            same = (torch.roll(rows.message, -offset, dims=1) == rows.message) & rows.user
            same = same & (torch.roll(rows.place, -offset, dims=1) == rows.place + offset)
            neighbours.append(moved * same[..., None])
        return x + page + fn.linear(torch.cat(neighbours, dim=-1), self.around)

    def _rotary(self, rows: Features) -> tuple[torch.Tensor, torch.Tensor]:
        """Return cosines and sines (`B1Td`): half of a head's width turns with the token, half with the message."""
        quarter = self.shape.width // self.shape.heads // 4
        rates = _ROTARY_BASE ** (-torch.arange(quarter) / quarter)
        angles = torch.cat(
            (rows.place[..., None] * rates, rows.message[..., None] * rates * (math.pi / 2)), dim=-1
        )
        angles = torch.cat((angles, angles), dim=-1)[:, None]
        return angles.cos(), angles.sin()

    def _carry(self, x_BTD: torch.Tensor, rows: Features, states_BSD: torch.Tensor) -> torch.Tensor:
        points = rows.pointed >= 0
        if not bool(points.any()):
            return x_BTD
        index = rows.pointed.clamp_min(0)[..., None].expand(-1, -1, x_BTD.shape[-1])
        carried = fn.linear(states_BSD.gather(1, index), self.carry)
        return x_BTD + carried * points[..., None]

    def _marks(self, x_BTD: torch.Tensor) -> torch.Tensor:
        return fn.linear(fn.layer_norm(x_BTD, (self.shape.width,), self.mark_norm), self.mark)


def _turn(x_BHTd: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    half = x_BHTd.shape[-1] // 2
    turned = torch.cat((-x_BHTd[..., half:], x_BHTd[..., :half]), dim=-1)
    return x_BHTd * cos + turned * sin


def visible(pages: list[Page], *, first: list[int], width: int, slots: int) -> NDArray[np.bool_]:
    """Return `[b, w, s]`: may unit `first[b] + w` look at unit s. Padding looks at unit 0."""
    mask = np.zeros((len(pages), width, slots), np.bool_)
    mask[:, :, 0] = True
    for b, page in enumerate(pages):
        units = len(page.at_W)
        own = np.arange(first[b], units)
        message = np.where(page.user_T, page.message_T, -1)[page.at_W]
        seen = np.arange(units)[None] <= own[:, None]
        together = (message[own][:, None] == message[None]) & (message >= 0)[None]
        mask[b, : len(own), :units] = seen | together
    return mask
