"""Items of a sorted list that are near to a value."""

from searching.places import left_place, right_place


def floor(items, value):
    """Return the greatest item that is not above value, or None."""
    place = right_place(items, value)
    if place > 0:
        return items[place - 1]
    return None


def ceiling(items, value):
    """Return the smallest item that is not below value, or None."""
    index = left_place(items, value)
    return items[index] if index < len(items) else None


def closest(items, value):
    """Return the item nearest to value; the smaller one of equally near."""
    if not items:
        raise ValueError("the list is empty")
    if value <= items[0]:
        return items[0]
    if value >= items[-1]:
        return items[-1]
    below = floor(items, value)
    above = ceiling(items, value)
    if value - below > above - value:
        return above
    return below
