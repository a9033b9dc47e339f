"""FrozenLake maps: Gymnasium's two fixed ones and its random maps, seed for seed.

A map is text, one letter per cell (S start, F frozen, H hole, G goal), rows joined by newlines. Draws the same random
numbers in the same order as `gymnasium.envs.toy_text.frozen_lake` (`generate_random_map`, Gymnasium 1.x), so equal
seeds give equal maps; never imports it.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from rock_env.errors import InvalidArgument

__all__ = ["FIXED_MAPS", "random_map"]

FIXED_MAPS = {
    "4x4": "SFFF\nFHFH\nFFFH\nHFFG",
    "8x8": "SFFFFFFF\nFFFFFFFF\nFFFHFFFF\nFFFFFHFF\nFFFHFFFF\nFHHFFFHF\nFHFFHFHF\nFFFHFFFG",
}

MAX_BOARDS = 10_000
"""Gymnasium tries for ever; at probabilities where a crossing is this rare the arguments are wrong."""
MAX_CELLS = 1_000_000
"""Of all boards that are drawn for one map, so that a large one takes no longer than a small one."""


def random_map(size: int, frozen_probability: float, seed: int) -> str:
    """Draw boards until start and goal connect, and return the map.

    Raise `InvalidArgument` when none of `MAX_BOARDS` boards, or of `MAX_CELLS` cells of boards, can be crossed.
    """
    rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed)))
    cumulative = np.cumsum([frozen_probability, 1.0 - frozen_probability])
    threshold = cumulative[0] / cumulative[-1]
    boards = min(MAX_BOARDS, MAX_CELLS // size**2)
    for _ in range(boards):
        is_hole = (rng.random((size, size)) >= threshold).ravel().tolist()
        is_hole[0] = is_hole[-1] = False
        if _connected(is_hole, size):
            return _as_text(is_hole, size)
    raise InvalidArgument(
        f"no crossable {size}x{size} map in {boards} boards with "
        f"frozen_probability={frozen_probability!r}: raise it (Gymnasium's is 0.8) or lower size."
    )


@cache
def _column_masks(size: int) -> tuple[int, int]:
    """Return the boards' bits without the first column and without the last (row-major, cell 0 is bit 0)."""
    row = (1 << size) - 1
    not_first = sum((row & ~1) << (size * y) for y in range(size))
    not_last = sum((row >> 1) << (size * y) for y in range(size))
    return not_first, not_last


def _connected(is_hole: list[bool], size: int) -> bool:
    """Flood the ice from the start, all cells of the board at once as bits of one integer."""
    not_first, not_last = _column_masks(size)
    ice = sum(1 << cell for cell, hole in enumerate(is_hole) if not hole)
    goal = 1 << (size * size - 1)
    reached, before = 1, 0
    while reached != before and not reached & goal:
        before = reached
        sideways = ((reached & not_last) << 1) | ((reached & not_first) >> 1)
        reached |= (sideways | reached << size | reached >> size) & ice
    return bool(reached & goal)


def _as_text(is_hole: list[bool], size: int) -> str:
    letters = ["H" if hole else "F" for hole in is_hole]
    letters[0], letters[-1] = "S", "G"
    return "\n".join("".join(letters[row : row + size]) for row in range(0, size * size, size))
