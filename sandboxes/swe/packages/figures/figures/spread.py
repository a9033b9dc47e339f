"""How far numbers lie apart."""

from figures.middle import mean


def variance(numbers, sample=False):
    """Return the mean square distance to the mean."""
    count = len(numbers)
    if sample:
        count -= 1
    if count < 1:
        raise ValueError("too few numbers")
    centre = mean(numbers)
    squares = 0
    for number in numbers:
        squares += (number - centre) ** 2
    return squares / count


def standard_deviation(numbers, sample=False):
    """Return the square root of the variance."""
    return variance(numbers, sample) ** 0.5


def span(numbers, default=0):
    """Return the distance from the least to the greatest number."""
    if not numbers:
        return default
    return max(numbers) - min(numbers)
