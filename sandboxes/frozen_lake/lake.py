"""The lake itself: directions, transitions and how a position looks. Tables only, shared by env and oracle.

Transitions are Gymnasium's FrozenLake-v1: 0 left, 1 down, 2 right, 3 up; moving off the edge stays; on
slippery ice the move turns to either side with probability 1/3 each. Cells are numbered row by row from 0.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Literal

from rock_env.env import StepResult
from rock_env.errors import InvalidArgument
from rock_env.spec import Board, Look

__all__ = ["BOARDS", "DIRECTIONS", "Lake", "Symbols", "cell_symbols", "lake", "moves", "slips"]

DIRECTIONS = ("left", "down", "right", "up")
Symbols = Literal["gem", "gymnasium"]

PLAYER, FALLEN, ARRIVED = "P", "X", "√"
CELL_SYMBOLS: dict[Symbols, dict[str, str]] = {
    "gem": {"S": "_", "F": "_", "H": "O", "G": "G"},
    "gymnasium": {"S": "S", "F": "F", "H": "H", "G": "G"},
}
_LOOKS: dict[str, Look] = {"S": "ice", "F": "ice", "H": "hole", "G": "goal"}
BOARDS: dict[str, Board] = {
    name: {sign: _LOOKS[letter] for letter, sign in signs.items()}
    | {PLAYER: "player", FALLEN: "fallen", ARRIVED: "arrived"}
    for name, signs in CELL_SYMBOLS.items()
}


def cell_symbols(symbols: Symbols) -> dict[str, str]:
    """Return what each map letter (S, F, H, G) looks like while the player is elsewhere."""
    return CELL_SYMBOLS[symbols]


@cache
def moves(size: int) -> tuple[int, ...]:
    """Return the cell that direction d leads to from cell s, at index 4·s + d."""
    table: list[int] = []
    for cell in range(size * size):
        row, column = divmod(cell, size)
        table += (
            cell - 1 if column > 0 else cell,
            cell + size if row < size - 1 else cell,
            cell + 1 if column < size - 1 else cell,
            cell - size if row > 0 else cell,
        )
    return tuple(table)


@cache
def slips(size: int) -> tuple[int, ...]:
    """Return the three equally likely next cells of (s, d), at indices 3·(4·s + d) to + 2."""
    table = moves(size)
    return tuple(
        table[4 * cell + (direction + turn) % 4]
        for cell in range(size * size)
        for direction in range(4)
        for turn in (-1, 0, 1)
    )


class Lake:
    """One map with one set of symbols; remembers the result of standing on each cell."""

    __slots__ = ("_background", "_results", "goal", "letters", "size", "start")

    def __init__(self, text: str, symbols: Symbols) -> None:
        rows = text.split("\n")
        self.size = len(rows)
        self.letters = "".join(rows)
        if {len(row) for row in rows} != {self.size} or set(self.letters) - set("SFHG"):
            raise InvalidArgument(
                f"not a FrozenLake map: got {text!r}, expected a square of the letters S, F, H, G. "
                "Pass a task of this environment."
            )
        if self.letters.count("S") != 1 or self.letters.count("G") != 1:
            raise InvalidArgument(f"a FrozenLake map needs exactly one S and one G, got {text!r}.")
        self.start = self.letters.index("S")
        self.goal = self.letters.index("G")
        self._background = text.translate({ord(a): b for a, b in CELL_SYMBOLS[symbols].items()})
        self._results: list[StepResult | None] = [None] * len(self.letters)

    def result(self, cell: int) -> StepResult:
        """Return what arriving on `cell` gives, before any turn limit. Shared: a StepResult is a value."""
        return self._results[cell] or self._remember(cell)

    def _remember(self, cell: int) -> StepResult:
        letter = self.letters[cell]
        mark = FALLEN if letter == "H" else ARRIVED if letter == "G" else PLAYER
        at = cell + cell // self.size  # one newline ends each row
        observation = self._background[:at] + mark + self._background[at + 1 :]
        result = StepResult(observation, 1.0 if letter == "G" else 0.0, terminated=letter in "GH")
        self._results[cell] = result
        return result


@lru_cache(maxsize=1024)
def lake(text: str, symbols: Symbols) -> Lake:
    """Return the (cached) lake of a map. Raise `InvalidArgument` for text that is not a map."""
    return Lake(text, symbols)
