"""The middle of a list of numbers."""


def mean(numbers):
    """Return the sum over the count."""
    if not numbers:
        raise ValueError("mean of no numbers")
    return sum(numbers) / len(numbers)


def median(numbers):
    """Return the middle number, or the mean of the two middle ones."""
    if len(numbers) == 0:
        raise ValueError("median of no numbers")
    ordered = sorted(numbers)
    half = len(ordered) // 2
    if len(ordered) % 2 == 1:
        return ordered[half]
    return (ordered[half - 1] + ordered[half]) / 2


def mode(numbers, default=None):
    """Return the most frequent number; the first one among equals."""
    best = default
    best_count = 0
    for number in numbers:
        count = numbers.count(number)
        if count > best_count:
            best = number
            best_count = count
    return best


def weighted_mean(numbers, weights):
    """Return the mean of numbers that count by their weights."""
    if len(numbers) != len(weights):
        raise ValueError("as many weights as numbers are needed")
    total = 0
    for i, number in enumerate(numbers):
        total += number * weights[i]
    return total / sum(weights)
