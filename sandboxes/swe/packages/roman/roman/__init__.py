"""Roman numerals: writing, reading and simple sums."""

from roman.reading import is_roman, parse
from roman.sums import add, largest, ordered
from roman.writing import numeral, table

__all__ = ["add", "is_roman", "largest", "numeral", "ordered", "parse", "table"]
