"""Pictures are lists of strings with a letter for a living cell."""


def read(lines, letter="o", top=0, left=0):
    """Return the living cells of a picture."""
    alive = set()
    for i, line in enumerate(lines):
        for j, sign in enumerate(line):
            if sign == letter:
                alive.add((top + i, left + j))
    return alive


def bounds(alive):
    """Return (top, left, bottom, right) of the living cells, or None."""
    if not alive:
        return None
    rows = [row for row, _ in alive]
    columns = [column for _, column in alive]
    return (min(rows), min(columns), max(rows), max(columns))


def draw(alive, letter="o", blank="."):
    """Return the smallest picture of all living cells."""
    edges = bounds(alive)
    if edges is None:
        return []
    top, left, bottom, right = edges
    lines = []
    for row in range(top, bottom + 1):
        line = ""
        for column in range(left, right + 1):
            line += letter if (row, column) in alive else blank
        lines.append(line)
    return lines
