"""Clamp, wrap and map numbers between ranges."""

from bounds.clamping import clamp, in_range, wrap
from bounds.mapping import lerp, progress, rescale
from bounds.spans import overlap, span, step_values

__all__ = [
    "clamp",
    "in_range",
    "lerp",
    "overlap",
    "progress",
    "rescale",
    "span",
    "step_values",
    "wrap",
]
