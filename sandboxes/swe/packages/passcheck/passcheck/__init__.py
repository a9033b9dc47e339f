"""Policies for passwords and their strength."""

from passcheck.policy import Policy
from passcheck.signs import count_classes, longest_run, longest_series
from passcheck.strength import is_common, score

__all__ = [
    "Policy",
    "count_classes",
    "is_common",
    "longest_run",
    "longest_series",
    "score",
]
