"""Averages that move along a series."""


def moving(values, window):
    """Return the mean of every window of neighbours, oldest first."""
    if window < 1:
        raise ValueError("the window must hold at least one value")
    result = []
    for end in range(window, len(values) + 1):
        part = values[end - window : end]
        result.append(sum(part) / window)
    return result


def exponential(series, alpha=0.5):
    """Smooth series; alpha is the weight of the newest value."""
    if not 0 < alpha <= 1:
        raise ValueError("alpha must be above 0 and at most 1")
    smoothed = []
    for value in series:
        if smoothed:
            value = alpha * value + (1 - alpha) * smoothed[-1]
        smoothed.append(value)
    return smoothed


def cumulative(numbers):
    """Return the mean of the first value, of the first two, and so on."""
    means = []
    total = 0
    for count, number in enumerate(numbers, start=1):
        total += number
        means.append(total / count)
    return means
