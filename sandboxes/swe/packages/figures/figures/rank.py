"""Where a number stands in an ordered list."""


def percentile(numbers, percent):
    """Return the number at a percentile, between two neighbours if need be."""
    if not numbers:
        raise ValueError("percentile of no numbers")
    if percent < 0 or percent > 100:
        raise ValueError("percent must be from 0 to 100")
    ordered = sorted(numbers)
    position = (len(ordered) - 1) * percent / 100
    low = int(position)
    high = min(low + 1, len(ordered) - 1)
    part = position - low
    return ordered[low] + (ordered[high] - ordered[low]) * part


def interquartile_range(numbers):
    """Return the distance from the first to the third quarter."""
    return percentile(numbers, 75) - percentile(numbers, 25)


def rank_of(numbers, value):
    """Return the place of a value from one, the greatest first."""
    place = 1
    for number in numbers:
        if number > value:
            place += 1
    return place
