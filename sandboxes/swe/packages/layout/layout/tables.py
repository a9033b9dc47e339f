"""Simple tables from rows of cells."""

from layout.aligning import align


def column_widths(rows, minimum=1):
    """Return the width of every column; short rows have empty cells."""
    widths = []
    for row in rows:
        for place, cell in enumerate(row):
            if place == len(widths):
                widths.append(minimum)
            widths[place] = max(widths[place], len(str(cell)))
    return widths


def render(table, separator=" | ", header=True):
    """Return the table as text; numbers go to the right of their cells."""
    widths = column_widths(table)
    lines = []
    for index, cells in enumerate(table):
        parts = []
        for width, cell in zip(widths, cells):
            side = "right" if isinstance(cell, int) else "left"
            parts.append(align(str(cell), width, side))
        lines.append(separator.join(parts).rstrip())
        if header and index == 0:
            length = sum(widths) + len(separator) * (len(widths) - 1)
            lines.append("-" * length)
    return "\n".join(lines)
