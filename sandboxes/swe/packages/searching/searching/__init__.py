"""Binary search in its usual variants."""

from searching.nearest import ceiling, closest, floor
from searching.places import count_equal, find, left_place, right_place
from searching.special import root, turning_point

__all__ = [
    "ceiling",
    "closest",
    "count_equal",
    "find",
    "floor",
    "left_place",
    "right_place",
    "root",
    "turning_point",
]
