"""Counts over all fields of a map."""

from flood.field import cells_of, neighbours


def field_sizes(grid, letter):
    """Return the sizes of the fields of a letter, as they are met."""
    sizes = []
    seen = set()
    for row, line in enumerate(grid):
        for column, sign in enumerate(line):
            if sign == letter and (row, column) not in seen:
                cells = cells_of(grid, row, column)
                seen.update(cells)
                sizes.append(len(cells))
    return sizes


def largest_field(grid, letters):
    """Return the letter with the largest field and its size."""
    best = None
    most = 0
    for name in letters:
        for size in field_sizes(grid, name):
            if size > most:
                best = name
                most = size
    return (best, most)


def border_length(grid, row, column):
    """Return how many cell sides the border of a field has."""
    inside = cells_of(grid, row, column)
    sides = 4 * len(inside)
    for i, j in inside:
        for other in neighbours(grid, i, j):
            if other in inside:
                sides -= 1
    return sides
