"""Living cells are a set of (row, column)."""


def around(cell):
    """Return the eight cells around a cell."""
    row, column = cell
    cells = []
    for i in range(row - 1, row + 2):
        for j in range(column - 1, column + 2):
            if (i, j) != cell:
                cells.append((i, j))
    return cells


def count_around(alive, cell):
    """Return how many of the eight cells around a cell are alive."""
    return len([other for other in around(cell) if other in alive])


def step(alive, born=(3,), stays=(2, 3)):
    """Return the living cells of the next generation."""
    grown = set()
    for cell in alive:
        for place in [cell, *around(cell)]:
            count = count_around(alive, place)
            wanted = stays if place in alive else born
            if count in wanted:
                grown.add(place)
    return grown


def is_still(alive):
    """Tell whether a pattern does not change."""
    return step(alive) == alive


def period(alive, limit=10):
    """Return after how many steps a pattern comes back, or 0."""
    now = alive
    for count in range(1, limit + 1):
        now = step(now)
        if now == alive:
            return count
    return 0
