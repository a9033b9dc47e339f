"""Averages and smoothing of number series."""

from averages.moving import cumulative, exponential, moving
from averages.plain import mean, median, weighted
from averages.trends import changes, longest_rise, peaks

__all__ = [
    "changes",
    "cumulative",
    "exponential",
    "longest_rise",
    "mean",
    "median",
    "moving",
    "peaks",
    "weighted",
]
