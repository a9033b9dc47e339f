"""Sokoban's rules: one level in play, moved in place. Used by env and oracle; knows nothing of turns or rewards.

The board is kept as the characters of its observation, so that showing it is one join.
"""

from __future__ import annotations

from sandboxes.sokoban.level import SymbolSet, steps

__all__ = ["Board"]


class Board:
    """A rendered level in play. `boxes_off` counts the boxes that are not on a target; solved at 0."""

    __slots__ = ("_cells", "_player", "_steps", "_symbols", "boxes_off")

    def __init__(self, grid: str, symbols: SymbolSet) -> None:
        self._cells = list(grid)
        self._symbols = symbols
        self._steps = steps(grid)
        on_floor = grid.find(symbols.player)
        self._player = on_floor if on_floor >= 0 else grid.index(symbols.player_on)
        self.boxes_off = grid.count(symbols.box)

    @property
    def text(self) -> str:
        """Return the board as it is shown."""
        return "".join(self._cells)

    def move(self, direction: int) -> int:
        """Walk or push one cell; against a wall or a stuck box nothing moves. Return how many boxes went onto a target.

        The result is 1, 0 or -1 (a box left its target).
        """
        wall, floor, target, box, box_on, player, player_on = self._symbols
        cells = self._cells
        here = self._player
        step = self._steps[direction]
        there = here + step
        entered = cells[there]
        if entered == wall:
            return 0
        gained = 0
        if entered in (box, box_on):
            beyond = cells[there + step]
            if beyond == floor:
                cells[there + step] = box
            elif beyond == target:
                cells[there + step] = box_on
                gained = 1
            else:
                return 0
            if entered == box_on:
                gained -= 1
                entered = target
            self.boxes_off -= gained
        cells[there] = player_on if entered == target else player
        cells[here] = target if cells[here] == player_on else floor
        self._player = there
        return gained
