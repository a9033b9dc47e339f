"""The basic operations on fractions."""

from ratios.divisors import reduce


def add(left, right, sign=1):
    """Return left + right, or left - right with sign=-1."""
    top = left[0] * right[1] + sign * right[0] * left[1]
    return reduce(top, left[1] * right[1])


def multiply(*fractions):
    """Return the product of the fractions, (1, 1) if there is none."""
    numerator, denominator = 1, 1
    for above, below in fractions:
        numerator *= above
        denominator *= below
    return reduce(numerator, denominator)


def divide(dividend, divisor):
    """Return dividend / divisor."""
    if divisor[0] == 0:
        raise ZeroDivisionError("division by zero")
    return multiply(dividend, (divisor[1], divisor[0]))


def compare(first, second):
    """Return -1, 0 or 1 as first is below, equal to or above second."""
    difference = add(first, second, sign=-1)[0]
    if difference > 0:
        return 1
    if difference < 0:
        return -1
    return 0
