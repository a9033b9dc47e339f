"""Compare two intervals, or an interval with a point."""


def contains(interval, point):
    """Tell whether point lies in the interval; the end does not."""
    start, end = interval
    return start <= point < end


def intersect(first, second):
    """Return the common part of two intervals, or None if there is none."""
    low = max(first[0], second[0])
    high = min(first[1], second[1])
    if low >= high:
        return None
    return low, high


def subtract(whole, part):
    """Return the pieces of whole that part does not cover."""
    common = intersect(whole, part)
    if common is None:
        return [whole]
    left, right = common
    pieces = []
    if whole[0] < left:
        pieces.append((whole[0], left))
    if right < whole[1]:
        pieces.append((right, whole[1]))
    return pieces
