"""Waiting times between tries."""

from retries.delays import exponential, fibonacci, linear, spread
from retries.plan import fit_budget, play, retry_after, start_times

__all__ = [
    "exponential",
    "fibonacci",
    "fit_budget",
    "linear",
    "play",
    "retry_after",
    "spread",
    "start_times",
]
