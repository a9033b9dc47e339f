"""Connected fields on a letter map."""

from flood.field import cells_of, fill, neighbours
from flood.survey import border_length, field_sizes, largest_field

__all__ = [
    "border_length",
    "cells_of",
    "field_sizes",
    "fill",
    "largest_field",
    "neighbours",
]
