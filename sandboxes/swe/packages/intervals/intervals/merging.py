"""Merge intervals that touch or overlap."""


def merge(intervals, distance=0):
    """Return sorted intervals, joined where at most distance lies between them."""
    merged = []
    for start, end in sorted(intervals):
        if start > end:
            raise ValueError("an interval ends before it starts")
        if merged and start - merged[-1][1] <= distance:
            last_start, last_end = merged.pop()
            merged.append((last_start, max(last_end, end)))
        else:
            merged.append((start, end))
    return merged


def insert(intervals, begin, length):
    """Return the merged intervals with one of the given length added, if any."""
    if length == 0:
        return merge(intervals)
    extended = list(intervals)
    extended.append((begin, begin + length))
    return merge(extended)
