"""Matching, depth and removal of brackets."""

from brackets.depth import depths, max_depth, split_top
from brackets.matching import first_error, is_balanced, partner
from brackets.repair import missing_closers, strip_quotes

__all__ = [
    "depths",
    "first_error",
    "is_balanced",
    "max_depth",
    "missing_closers",
    "partner",
    "split_top",
    "strip_quotes",
]
