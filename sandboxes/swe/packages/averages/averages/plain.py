"""One average for a whole series."""


def mean(values, default=None):
    """Return the arithmetic mean, or default for an empty series."""
    if not values:
        return default
    return sum(values) / len(values)


def median(values):
    """Return the middle value, or the mean of the two middle values."""
    ordered = sorted(values)
    count = len(ordered)
    if count == 0:
        raise ValueError("no values")
    middle = count // 2
    if count % 2 == 1:
        return ordered[middle]
    return (ordered[middle - 1] + ordered[middle]) / 2


def weighted(numbers, weights):
    """Return the mean of numbers, each counted by its weight."""
    if len(numbers) != len(weights):
        raise ValueError("one weight per number is needed")
    total = 0
    weight_sum = 0
    for number, weight in zip(numbers, weights):
        total += number * weight
        weight_sum += weight
    if weight_sum == 0:
        raise ValueError("the weights add up to zero")
    return total / weight_sum
