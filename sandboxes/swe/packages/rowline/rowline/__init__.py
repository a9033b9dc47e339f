"""Lines of separated fields."""

from rowline.reader import split_line, to_records
from rowline.writer import join_fields, needs_quotes, quote, select_columns

__all__ = [
    "join_fields",
    "needs_quotes",
    "quote",
    "select_columns",
    "split_line",
    "to_records",
]
