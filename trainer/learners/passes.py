"""A batch in passes of at most so many tokens that are really computed: what rows begin with in common counts once.

Used by `trainer.learners.torch_train` and, before it deals them to ranks, by `trainer.learners.ranks.pool`. The same batch
gives the same passes in the same order.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from trainer.data.batch import TrainBatch
from trainer.data.build import bins_by_width, bundles_of, taken
from trainer.learners.picked import Picked
from trainer.learners.prefixes import Layout, layout_of, order_of, read_rows

__all__ = ["Pass", "passes_of"]

Ints = NDArray[np.int64]


_MOST_CELLS = 1 << 21
"""Rows by the longest: a loss holds some numbers of each cell, however few of them are computed."""


class Pass(NamedTuple):
    """One forward and backward pass of a learner."""

    batch: TrainBatch
    tokens: int
    """What is computed, padding included."""
    trained: int


def passes_of(batch: TrainBatch, most: int, *, shares: int = 0, ranks: int = 1) -> list[Pass]:
    """Cut a batch into passes of at most `most` tokens; one alone has more where a row, or rows that share a chunk, do.

    `shares`: the width of a network that computes once what rows begin with in common; 0: of another. `ranks`: who divide
    the passes, which are then small enough that each gets one where there are rows enough.
    """
    rows = _Rows.of(batch, shares)
    cuts = [bins_by_width(batch, _share(most, lambda: int(batch.segment_ids_BT.count_nonzero()), ranks))]
    if shares and rows.tokens is not None:
        share = _share(most, lambda: rows.layout(np.arange(len(batch.tokens_BT))).tokens, ranks)
        cuts.append(_neighbours(bundles_of(batch), rows, share))
    laid = [[rows.layout(each) for each in cut] for cut in cuts]
    best = min(range(len(cuts)), key=lambda cut: sum(each.work for each in laid[cut]))
    parts = [taken(batch, each) for each in cuts[best]]
    trained = [int((part.loss_mask_BT | (part.imitation_BT != 0)).sum()) for part in parts]
    return [Pass(*each) for each in zip(parts, (each.tokens for each in laid[best]), trained, strict=True)]


def _share(most: int, tokens: Callable[[], int], ranks: int) -> int:
    return most if ranks == 1 else min(most, max(1, -(-tokens() // ranks)))


def _neighbours(bundles: list[Ints], rows: _Rows, most: int) -> list[Ints]:
    """Cut rows so that those which share a beginning are together, as many as fit."""
    ordered = sorted(bundles, key=rows.place)
    cuts: list[Ints] = []
    start = 0
    while start < len(ordered):
        left = ordered[start:]

        def tokens(count: int, left: list[Ints] = left) -> int:
            taken = np.concatenate(left[:count])
            cells = len(taken) * int(rows.length_B[taken].max())
            return rows.layout(taken).tokens if cells <= _MOST_CELLS or count == 1 else most + 1

        most_tried = 2
        while most_tried <= len(left) and tokens(most_tried) <= most:
            most_tried *= 2
        tried = range(most_tried // 2 + 1, min(most_tried, len(left) + 1))
        count = most_tried // 2 + bisect_right(tried, most, key=tokens)
        cuts.append(np.concatenate(left[:count]))
        start += count
    return cuts


@dataclass(frozen=True, slots=True, eq=False)
class _Rows:
    """What a network computes of each row of a batch."""

    tokens: Ints | None
    """Distinct sequences as `read_rows` returns them, in an order in which those that share a beginning are neighbours;
    None: nothing trains."""
    length_B: Ints
    """Of each row, whether anything of it is computed or not."""
    length_U: Ints
    sequences: list[Ints]
    """Of each row."""
    shares: int

    def place(self, rows: Ints) -> int:
        """Return the first place of what rows hang on, in the order of the sequences."""
        return min((int(each.min()) for row in rows.tolist() if len(each := self.sequences[row])), default=0)

    def layout(self, rows: Ints) -> Layout:
        """Return how rows are computed in a pass of their own."""
        asked = np.unique(
            np.concatenate([self.sequences[row] for row in rows.tolist()] or [self.length_U[:0]])
        )
        if self.tokens is None or not len(asked):
            return Layout(None, 0, 0.0)
        length_U = self.length_U[asked]
        return layout_of(self.tokens[asked, : length_U.max()], length_U, self.shares)

    @staticmethod
    def of(batch: TrainBatch, shares: int) -> _Rows:
        rows = len(batch.tokens_BT)
        picked = Picked.of(batch, torch.device("cpu"))
        nothing, length_B = np.zeros(0, np.int64), batch.segment_ids_BT.ne(0).sum(1).cpu().numpy()
        if picked is None:
            return _Rows(None, length_B, nothing, [nothing] * rows, shares)
        tokens, length_U = read_rows(picked.tokens_UT, picked.at_UM)
        order_U = order_of(tokens) if shares else np.arange(len(tokens))
        place_U = np.empty_like(order_U)
        place_U[order_U] = np.arange(len(order_U))
        # Picked tokens lie row by row, and segment by segment in a row.
        row_N, sequence_N = picked.row_N.numpy(), place_U[picked.source_N.numpy() // picked.at_UM.shape[1]]
        cuts = np.searchsorted(row_N, np.arange(1, rows))
        return _Rows(tokens[order_U], length_B, length_U[order_U], np.split(sequence_N, cuts), shares)
