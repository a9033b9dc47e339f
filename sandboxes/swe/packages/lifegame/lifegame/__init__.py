"""Cells that live, die and are born."""

from lifegame.picture import bounds, draw, read
from lifegame.rules import count_around, is_still, period, step

__all__ = ["bounds", "count_around", "draw", "is_still", "period", "read", "step"]
