"""Polynomials as coefficient lists, the constant first."""

from polynomials.algebra import add, multiply, power
from polynomials.basics import degree, evaluate, trim
from polynomials.calculus import derivative, integral, to_text

__all__ = [
    "add",
    "degree",
    "derivative",
    "evaluate",
    "integral",
    "multiply",
    "power",
    "to_text",
    "trim",
]
