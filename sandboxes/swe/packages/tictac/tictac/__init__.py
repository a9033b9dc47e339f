"""Tic-tac-toe boards and their scoring."""

from tictac.board import empty_board, is_full, lines, place
from tictac.score import is_draw, league_points, next_mark, winner

__all__ = [
    "empty_board",
    "is_draw",
    "is_full",
    "league_points",
    "lines",
    "next_mark",
    "place",
    "winner",
]
