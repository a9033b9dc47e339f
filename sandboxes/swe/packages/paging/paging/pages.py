"""Pages are counted from one and have a fixed size."""


def page_count(total, size=10):
    """Return how many pages hold a total of items; at least one."""
    if size < 1:
        raise ValueError("size must be at least 1")
    if total <= 0:
        return 1
    return (total + size - 1) // size


def page_items(items, page, size=10):
    """Return the items on a page."""
    if page < 1 or page > page_count(len(items), size):
        raise ValueError("no such page")
    start = (page - 1) * size
    return items[start : start + size]


def page_of(index, size=10):
    """Return the page that shows the item with an index from zero."""
    if index < 0:
        raise ValueError("index must not be negative")
    return index // size + 1


def item_range(page, total, size=10):
    """Return the first and last item number on a page, from one."""
    first = (page - 1) * size + 1
    last = min(page * size, total)
    if first > last:
        return (0, 0)
    return (first, last)
