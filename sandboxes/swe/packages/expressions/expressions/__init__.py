"""A calculator for arithmetic expressions."""

from expressions.calculator import apply, calculate, evaluate
from expressions.postfix import priority, to_postfix
from expressions.tokens import is_number, tokenize, value_of

__all__ = [
    "apply",
    "calculate",
    "evaluate",
    "is_number",
    "priority",
    "to_postfix",
    "tokenize",
    "value_of",
]
