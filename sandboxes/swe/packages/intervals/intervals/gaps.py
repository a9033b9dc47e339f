"""What intervals cover and what they leave free."""

from intervals.merging import merge


def find_gaps(intervals, start, end):
    """Return the parts of [start, end) that no interval covers."""
    gaps = []
    position = start
    for left, right in merge(intervals):
        if left > position:
            gaps.append((position, min(left, end)))
        position = max(position, right)
        if position >= end:
            break
    if position < end:
        gaps.append((position, end))
    return gaps


def covered(intervals):
    """Return how much length the intervals cover together."""
    total = 0
    for first, last in merge(intervals):
        total += last - first
    return total


def first_free(busy, length, start=0, stop=24):
    """Return the start of the first free slot of that length, or None."""
    for low, high in find_gaps(busy, start, stop):
        if high - low >= length:
            return low
    return None
