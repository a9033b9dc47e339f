"""Merging and comparing half-open intervals."""

from intervals.compare import contains, intersect, subtract
from intervals.gaps import covered, find_gaps, first_free
from intervals.merging import insert, merge

__all__ = [
    "contains",
    "covered",
    "find_gaps",
    "first_free",
    "insert",
    "intersect",
    "merge",
    "subtract",
]
