"""Exact arithmetic with fractions as pairs."""

from ratios.divisors import gcd, lcm, reduce
from ratios.operations import add, compare, divide, multiply
from ratios.writing import mixed, parse

__all__ = [
    "add",
    "compare",
    "divide",
    "gcd",
    "lcm",
    "mixed",
    "multiply",
    "parse",
    "reduce",
]
