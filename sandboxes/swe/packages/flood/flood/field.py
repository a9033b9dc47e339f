"""A cell is (row, column); a field is what hangs together by sides."""


def neighbours(grid, row, column):
    """Return the cells beside a cell: up, down, left, right."""
    found = []
    if row > 0:
        found.append((row - 1, column))
    if row < len(grid) - 1:
        found.append((row + 1, column))
    if column > 0:
        found.append((row, column - 1))
    if column < len(grid[row]) - 1:
        found.append((row, column + 1))
    return found


def cells_of(grid, row, column):
    """Return the cells of the field around a cell, nearest first."""
    letter = grid[row][column]
    cells = [(row, column)]
    for turn in range(len(grid) * len(grid[row])):
        if turn == len(cells):
            break
        for cell in neighbours(grid, cells[turn][0], cells[turn][1]):
            if grid[cell[0]][cell[1]] == letter and cell not in cells:
                cells.append(cell)
    return cells


def fill(grid, row, column, paint):
    """Return a copy of the map with a field in another letter."""
    rows = [list(line) for line in grid]
    for i, j in cells_of(grid, row, column):
        rows[i][j] = paint
    return ["".join(letters) for letters in rows]
