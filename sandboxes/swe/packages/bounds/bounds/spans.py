"""Compare whole ranges of numbers."""


def span(values):
    """Return the pair of the smallest and the largest value."""
    if not values:
        raise ValueError("no values given")
    smallest = values[0]
    largest = values[0]
    for value in values[1:]:
        smallest = min(smallest, value)
        largest = max(largest, value)
    return smallest, largest


def overlap(left, right):
    """Return the common part of two (low, high) pairs, or None."""
    low = max(left[0], right[0])
    high = min(left[1], right[1])
    if low > high:
        return None
    return low, high


def step_values(start, stop, step=1):
    """List start, start + step, ... up to and including stop."""
    if step <= 0:
        raise ValueError("step must be positive")
    count = (stop - start) // step + 1
    return [start + step * index for index in range(count)]
