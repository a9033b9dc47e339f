"""Rises, falls and peaks of a series."""


def changes(values):
    """Return the differences between neighbours."""
    return [values[i + 1] - values[i] for i in range(len(values) - 1)]


def peaks(values, minimum=0):
    """Return the indices of values above both neighbours and minimum."""
    found = []
    for index in range(1, len(values) - 1):
        current = values[index]
        if current <= minimum:
            continue
        if current > values[index - 1] and current > values[index + 1]:
            found.append(index)
    return found


def longest_rise(series):
    """Return the length of the longest strictly rising part."""
    if not series:
        return 0
    best = 1
    start = 0
    for end in range(1, len(series)):
        if series[end] <= series[end - 1]:
            start = end
        best = max(best, end - start + 1)
    return best
