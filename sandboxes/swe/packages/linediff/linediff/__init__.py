"""Common parts of lists and diffs of lines."""

from linediff.common import common_length, common_part, similarity
from linediff.patch import apply_diff, diff_lines, summary

__all__ = [
    "apply_diff",
    "common_length",
    "common_part",
    "diff_lines",
    "similarity",
    "summary",
]
