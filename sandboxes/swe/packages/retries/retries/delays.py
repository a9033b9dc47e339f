"""Lists of delays that grow in different ways."""


def linear(count, first=1, increment=1):
    """Return delays that grow by the same amount."""
    if count < 0:
        raise ValueError("count must not be negative")
    return [first + number * increment for number in range(count)]


def exponential(count, base=1, factor=2, longest=60):
    """Return delays that grow by a factor up to a longest one."""
    if factor < 1 or base <= 0:
        raise ValueError("delays must be positive and not shrink")
    delays = []
    delay = base
    for _ in range(count):
        delays.append(min(delay, longest))
        delay *= factor
    return delays


def fibonacci(count, longest=60):
    """Return delays that are each the sum of the two before."""
    sums = []
    before, now = 0, 1
    for _turn in range(count):
        sums.append(min(now, longest))
        before, now = now, before + now
    return sums


def spread(delays, part=0.5):
    """Return delays cut by a part at every second place."""
    if part < 0 or part > 1:
        raise ValueError("part must be from 0 to 1")
    cut = []
    for place, delay in enumerate(delays):
        cut.append(delay * (1 - part) if place % 2 == 1 else delay)
    return cut
