"""Degree and value of a polynomial."""


def trim(coefficients):
    """Return the coefficients without zeros at the end."""
    length = 0
    for index, coefficient in enumerate(coefficients):
        if coefficient != 0:
            length = index + 1
    return coefficients[:length]


def degree(poly, zero=-1):
    """Return the highest power, or zero for the zero polynomial."""
    trimmed = trim(poly)
    if not trimmed:
        return zero
    return len(trimmed) - 1


def evaluate(poly, x):
    """Return the value of the polynomial at x."""
    value = 0
    for number in reversed(poly):
        value = value * x + number
    return value
