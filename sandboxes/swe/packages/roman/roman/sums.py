"""Sums and orders of roman numerals."""

from roman.reading import parse
from roman.writing import numeral


def add(*terms):
    """Return the sum of the terms as a numeral."""
    total = 0
    for term in terms:
        total += parse(term)
    return numeral(total)


def largest(numerals):
    """Return the numeral of the highest value, the first one of equals."""
    best = None
    best_value = 0
    for text in numerals:
        value = parse(text)
        if value > best_value:
            best = text
            best_value = value
    return best


def ordered(numerals, descending=False):
    """Return the numerals sorted by value."""
    return sorted(numerals, key=parse, reverse=descending)
