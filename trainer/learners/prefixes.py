"""Rows that begin with the same tokens as one tree, so that what they share is computed once, forward and backward.

Used by the `hf` engine's learner: rollouts of one task share its prompt, branches of one trajectory their first turns. The
tokens of a tree stand in one sequence; each attends to those that its row has before it, and to nothing else. Attention over
a tree computes all pairs of its tokens, so a row joins only where that saves.
Shapes: B rows, T tokens, M picked positions of a row, G trees, S tokens of the largest tree, D width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

__all__ = ["Layout", "Trees", "laid_out", "layout_of", "order_of", "read_rows", "trees_of"]

Ints = NDArray[np.int64]

_SAVES = 0.8
"""Largest share of the work of rows apart at which trees are worth their mask."""
_PARTS = (1, 2, 3, 4, 6, 8, 12, 16)
"""Of how many trees of about equal size the cheapest is taken."""
_MOST_PAIRS = 1 << 26
"""Pairs of tokens in masks at once: 64 MiB, and 256 where attention takes them as numbers."""


@dataclass(frozen=True, slots=True, eq=False)
class Trees:
    """The rows as trees."""

    tokens_GS: torch.Tensor
    """int64; padding is 0 and lies to the right."""
    places_GS: torch.Tensor
    """int64; a token's position in its rows."""
    mask_G1SS: torch.Tensor
    """bool; which tokens a token attends to. Padding attends to itself."""
    at_BM: torch.Tensor
    """int64; where each picked position stands, as an index of the flattened `GS`."""


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """How rows are computed together."""

    groups: list[Ints] | None
    """The rows of each tree; None: rows apart."""
    tokens: int
    """What is computed, padding included."""
    work: float
    """What a layer costs, in units of one pair of tokens in attention."""


def trees_of(tokens_BT: torch.Tensor, at_BM: torch.Tensor, width: int) -> Trees | None:
    """Lay right-padded rows out as trees, each up to its last of `at_BM`; None where that would not save."""
    groups = layout_of(*read_rows(tokens_BT, at_BM), width).groups
    return None if groups is None else laid_out(tokens_BT, at_BM, groups)


def layout_of(tokens: Ints, length_B: Ints, width: int) -> Layout:
    """Choose how rows (as `read_rows` returns them) are computed by a network of this width; 0: one that shares nothing."""
    longest = int(length_B.max())
    apart = Layout(None, len(tokens) * longest, len(tokens) * _work(longest, width, pairs=0.5))
    if len(tokens) == 1 or not width:
        return apart
    order_B = order_of(tokens)
    length_B, shared_B = length_B[order_B], _shared(tokens[order_B], length_B[order_B])
    whole = int((length_B - shared_B).sum())
    # Attention over a tree computes all pairs of its tokens, so several smaller trees may cost less than a large one.
    tried = [_groups(length_B, shared_B, width, whole // parts + longest) for parts in _PARTS]
    trees = [
        Layout([order_B[group] for group in groups], len(groups) * most, len(groups) * _work(most, width))
        for groups, most in tried
        if len(groups) * most**2 <= _MOST_PAIRS
    ]
    best = min(trees, key=lambda layout: layout.work, default=apart)
    return best if best.work <= _SAVES * apart.work else apart


def order_of(tokens: Ints) -> Ints:
    """Return an order of rows in which those that share a beginning are neighbours, the same for the same rows."""
    return np.array(sorted(range(len(tokens)), key=lambda row: tokens[row].tobytes()), np.int64)


def laid_out(tokens_BT: torch.Tensor, at_BM: torch.Tensor, groups: Sequence[Ints]) -> Trees:
    """Lay rows out as trees, one for each group of rows; each row of one shares what it can with the row before it."""
    tokens, length_B = read_rows(tokens_BT, at_BM)
    trees = [_tree(rows, _shared(tokens[rows], length_B[rows]), tokens, length_B) for rows in groups]
    return _stacked(trees, at_BM.cpu().numpy(), tokens_BT.device)


def read_rows(tokens_BT: torch.Tensor, at_BM: torch.Tensor) -> tuple[Ints, Ints]:
    """Return the tokens, -1 behind a row's last picked position, and each row's length up to there."""
    tokens, length_B = tokens_BT.cpu().numpy(), at_BM.cpu().numpy().max(1) + 1
    return np.where(np.arange(tokens.shape[1]) < length_B[:, None], tokens, -1), length_B


def _work(tokens: int, width: int, pairs: float = 1.0) -> float:
    """Return what a layer costs, in units of one pair of tokens in attention; a layer has some 12 D^2 weights."""
    return 6.0 * width * tokens + pairs * tokens**2


def _shared(sorted_BT: Ints, length_B: Ints) -> Ints:
    """Return how many tokens each row has in common with the one before it."""
    differs = sorted_BT[1:] != sorted_BT[:-1]
    most = np.minimum(length_B[1:], length_B[:-1])
    common = np.where(differs.any(1), np.minimum(differs.argmax(1), most), most)
    return np.concatenate((np.zeros(1, np.int64), common))


def _groups(length_B: Ints, shared_B: Ints, width: int, bound: int) -> tuple[list[Ints], int]:
    """Cut the sorted rows into trees; return them, and the tokens of the largest.

    A row joins the one before it where its own sequence would cost more, and the tree then has at most `bound` tokens.
    """
    groups: list[list[int]] = []
    size = most = 0
    for row, (length, shared) in enumerate(zip(length_B.tolist(), shared_B.tolist(), strict=True)):
        joined = size + length - shared
        saves = _work(joined, width) < _work(size, width) + _work(length, width)
        if groups and shared and joined <= bound and saves:
            groups[-1].append(row)
            size = joined
        else:
            groups.append([row])
            size = length
        most = max(most, size)
    return [np.array(group, np.int64) for group in groups], most


@dataclass(frozen=True, slots=True, eq=False)
class _Tree:
    rows: Ints
    tokens_S: Ints
    places_S: Ints
    path: Sequence[Ints]
    """Of each row where its tokens stand."""
    new: Sequence[int]
    """Of each row from which place on the tokens are its own."""


def _tree(rows: Ints, shared: Ints, tokens: Ints, length_B: Ints) -> _Tree:
    found: list[Ints] = []
    path: list[Ints] = []
    new: list[int] = []
    size = 0
    for row, common in zip(rows.tolist(), shared.tolist(), strict=True):
        begin, length = (common if path else 0), int(length_B[row])
        own = np.arange(size, size + length - begin)
        path.append(np.concatenate((path[-1][:begin], own)) if path else own)
        new.append(begin)
        found.append(np.stack((tokens[row, begin:length], np.arange(begin, length))))
        size += len(own)
    tokens_S, places_S = np.concatenate(found, axis=1)
    return _Tree(rows, tokens_S, places_S, path, new)


def _stacked(trees: Sequence[_Tree], at_BM: Ints, device: torch.device) -> Trees:
    most = max(len(tree.tokens_S) for tree in trees)
    tokens_GS = np.zeros((len(trees), most), np.int64)
    places_GS = np.zeros((len(trees), most), np.int64)
    mask_GSS = np.zeros((len(trees), most, most), bool)
    mask_GSS[:, np.arange(most), np.arange(most)] = True
    found_BM = np.zeros_like(at_BM)
    for number, tree in enumerate(trees):
        size = len(tree.tokens_S)
        tokens_GS[number, :size], places_GS[number, :size] = tree.tokens_S, tree.places_S
        for row, path, begin in zip(tree.rows.tolist(), tree.path, tree.new, strict=True):
            before = np.tri(len(path) - begin, len(path), begin, dtype=bool)
            mask_GSS[number, path[begin:, None], path[None, :]] = before
            found_BM[row] = number * most + path[at_BM[row]]
    return Trees(
        tokens_GS=torch.from_numpy(tokens_GS).to(device),
        places_GS=torch.from_numpy(places_GS).to(device),
        mask_G1SS=torch.from_numpy(mask_GSS).to(device)[:, None],
        at_BM=torch.from_numpy(found_BM).to(device),
    )
