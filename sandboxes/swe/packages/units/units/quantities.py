"""Quantities: pairs of a number and a unit."""

from units.convert import convert, kind_of


def parse_quantity(text, default_unit="m"):
    """Read a quantity such as 3 km; the unit may be left out."""
    parts = text.split()
    if not parts or len(parts) > 2:
        raise ValueError("a number and a unit are needed")
    number = float(parts[0])
    unit = default_unit
    if len(parts) == 2:
        unit = parts[1]
    if kind_of(unit) is None:
        raise ValueError("there is no such unit")
    return number, unit


def add(first, second):
    """Add two quantities; the result has the unit of the first."""
    amount = convert(second[0], second[1], first[1])
    return first[0] + amount, first[1]


def compare(left, right, tolerance=0):
    """Return -1, 0 or 1 as left is below, equal to or above right."""
    difference = left[0] - convert(right[0], right[1], left[1])
    if abs(difference) <= tolerance:
        return 0
    if difference < 0:
        return -1
    return 1
