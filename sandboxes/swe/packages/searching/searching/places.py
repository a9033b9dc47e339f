"""Places of a value in a sorted list."""


def left_place(items, target):
    """Return the first index whose item is not below target."""
    low = 0
    high = len(items)
    for _ in range(len(items)):
        if low >= high:
            break
        middle = (low + high) // 2
        if items[middle] < target:
            low = middle + 1
        else:
            high = middle
    return low


def right_place(items, target):
    """Return the first index whose item is above target."""
    start, end = 0, len(items)
    for _ in items:
        if start == end:
            break
        center = (start + end) // 2
        if items[center] <= target:
            start = center + 1
        else:
            end = center
    return start


def find(items, target, missing=-1):
    """Return the first index of target, or missing."""
    place = left_place(items, target)
    if place < len(items) and items[place] == target:
        return place
    return missing


def count_equal(items, value):
    """Count how often value occurs."""
    return right_place(items, value) - left_place(items, value)
