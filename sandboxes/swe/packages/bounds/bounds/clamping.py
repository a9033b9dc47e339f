"""Keep a single number inside a range."""


def clamp(value, low, high):
    """Return value, or the nearest end of the range [low, high]."""
    if low > high:
        raise ValueError("low must not exceed high")
    if value < low:
        return low
    if value > high:
        return high
    return value


def in_range(number, start, stop, inclusive=False):
    """Tell whether number lies in [start, stop), or [start, stop] if inclusive."""
    if number < start:
        return False
    if inclusive:
        return number <= stop
    return number < stop


def wrap(angle, first, last):
    """Wrap angle around so that first <= result < last."""
    size = last - first
    if size <= 0:
        raise ValueError("the range is empty")
    offset = (angle - first) % size
    return first + offset
