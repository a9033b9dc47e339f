"""Settings in sections."""

from settings.access import as_bool, as_int, lookup, merge
from settings.parse import parse, parse_line, render

__all__ = [
    "as_bool",
    "as_int",
    "lookup",
    "merge",
    "parse",
    "parse_line",
    "render",
]
