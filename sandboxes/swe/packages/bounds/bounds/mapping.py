"""Map numbers from one range to another."""


def lerp(start, end, fraction):
    """Return the point that lies at fraction of the way from start to end."""
    return start + (end - start) * fraction


def rescale(value, source, target):
    """Move value from the range source to the range target, both pairs."""
    low, high = source
    if low == high:
        raise ValueError("the source range has no width")
    fraction = (value - low) / (high - low)
    new_low, new_high = target
    return lerp(new_low, new_high, fraction)


def progress(done, total, digits=0):
    """Return done / total as a percentage from 0 to 100."""
    if total <= 0:
        return 100.0
    percent = 100 * done / total
    if percent > 100:
        percent = 100.0
    return round(percent, digits)
