"""Operations on small matrices given as lists of rows."""

from matrices.arithmetic import add, dot, multiply, scale
from matrices.shapes import determinant, minor, trace
from matrices.views import column, identity, shape, transpose

__all__ = [
    "add",
    "column",
    "determinant",
    "dot",
    "identity",
    "minor",
    "multiply",
    "scale",
    "shape",
    "trace",
    "transpose",
]
