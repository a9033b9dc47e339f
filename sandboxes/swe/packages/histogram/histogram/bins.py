"""A bin goes from its edge up to, not with, the next; the last has both."""


def edges(low, high, count=10):
    """Return the edges of bins of equal width."""
    if count < 1:
        raise ValueError("at least one bin is needed")
    if low >= high:
        raise ValueError("low must be below high")
    width = (high - low) / count
    return [low + i * width for i in range(count)] + [high]


def bin_index(marks, value):
    """Return the index of the bin of a value, or None outside."""
    if value < marks[0] or value > marks[-1]:
        return None
    for i in range(1, len(marks)):
        if value < marks[i]:
            return i - 1
    return len(marks) - 2


def bin_counts(marks, values, clip=False):
    """Return how many values fall into each bin."""
    if len(marks) < 2:
        raise ValueError("two edges are needed")
    counts = [0] * (len(marks) - 1)
    for value in values:
        if clip:
            value = min(max(value, marks[0]), marks[-1])
        place = bin_index(marks, value)
        if place is not None:
            counts[place] += 1
    return counts
