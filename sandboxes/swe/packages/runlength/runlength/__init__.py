"""Run-length encoding of texts and sequences."""

from runlength.measures import longest_run, ratio, run_count
from runlength.pairs import expand, find_runs
from runlength.texts import decode, encode

__all__ = [
    "decode",
    "encode",
    "expand",
    "find_runs",
    "longest_run",
    "ratio",
    "run_count",
]
