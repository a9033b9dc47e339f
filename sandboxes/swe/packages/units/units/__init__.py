"""Conversion between units of measure."""

from units.convert import convert, kind_of
from units.durations import format_duration, parse_duration
from units.quantities import add, compare, parse_quantity

__all__ = [
    "add",
    "compare",
    "convert",
    "format_duration",
    "kind_of",
    "parse_duration",
    "parse_quantity",
]
