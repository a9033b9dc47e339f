"""Fractions as text, such as 3/4 or 1 1/2."""

from ratios.divisors import reduce


def mixed(fraction):
    """Write a fraction as a whole number and a proper fraction."""
    numerator, denominator = reduce(*fraction)
    sign = "-" if numerator < 0 else ""
    whole = abs(numerator) // denominator
    rest = abs(numerator) % denominator
    if rest == 0:
        return sign + str(whole)
    proper = f"{rest}/{denominator}"
    if whole == 0:
        return sign + proper
    return f"{sign}{whole} {proper}"


def parse(text, empty=None):
    """Read 3/4, 1 1/2 or -2; an empty text gives empty."""
    if not text.strip():
        return empty
    words = text.split()
    if len(words) > 2:
        raise ValueError("too many parts")
    above, slash, below = words[-1].partition("/")
    part = reduce(int(above), int(below) if slash else 1)
    if len(words) == 1:
        return part
    whole = int(words[0])
    if whole < 0:
        part = (-part[0], part[1])
    return reduce(whole * part[1] + part[0], part[1])
