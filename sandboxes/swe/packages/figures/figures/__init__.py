"""Middle, spread and rank of numbers."""

from figures.middle import mean, median, mode, weighted_mean
from figures.rank import interquartile_range, percentile, rank_of
from figures.spread import span, standard_deviation, variance

__all__ = [
    "interquartile_range",
    "mean",
    "median",
    "mode",
    "percentile",
    "rank_of",
    "span",
    "standard_deviation",
    "variance",
    "weighted_mean",
]
