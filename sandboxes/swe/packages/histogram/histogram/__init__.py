"""Bins, their counts and a picture of them."""

from histogram.bins import bin_counts, bin_index, edges
from histogram.chart import bar, chart, cumulative, tallest

__all__ = [
    "bar",
    "bin_counts",
    "bin_index",
    "chart",
    "cumulative",
    "edges",
    "tallest",
]
