"""Wrapping, alignment and simple tables for plain text."""

from layout.aligning import align, justify, pad
from layout.tables import column_widths, render
from layout.wrapping import indent, shorten, wrap

__all__ = [
    "align",
    "column_widths",
    "indent",
    "justify",
    "pad",
    "render",
    "shorten",
    "wrap",
]
