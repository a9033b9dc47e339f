"""Functions on lists that go round in rings or keep the last items."""

from ring.buffer import RingBuffer


def last_items(stream, count):
    """Return the last count items of a stream, oldest first."""
    buffer = RingBuffer(count)
    for item in stream:
        buffer.push(item)
    return buffer.items()


def rotate(items, steps=1):
    """Return the list turned to the right by that many steps."""
    if not items:
        return []
    cut = len(items) - steps % len(items)
    return items[cut:] + items[:cut]


def chunks(values, size, keep_rest=True):
    """Cut values into lists of size; the rest may be shorter or left out."""
    if size <= 0:
        raise ValueError("size must be positive")
    groups = []
    for first in range(0, len(values), size):
        group = values[first : first + size]
        if len(group) == size or keep_rest:
            groups.append(group)
    return groups
