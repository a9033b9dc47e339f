"""Numbers that belong to square matrices."""

from matrices.views import shape


def minor(matrix, skip_row, skip_column):
    """Return matrix without one row and one column."""
    rest = []
    for index, row in enumerate(matrix):
        if index == skip_row:
            continue
        rest.append(row[:skip_column] + row[skip_column + 1 :])
    return rest


def determinant(square):
    """Return the determinant, 1 for the empty matrix."""
    height, width = shape(square)
    if height != width:
        raise ValueError("the matrix is not square")
    if height == 0:
        return 1
    total = 0
    sign = 1
    for place in range(width):
        total += sign * square[0][place] * determinant(minor(square, 0, place))
        sign = -sign
    return total


def trace(grid):
    """Return the sum of the diagonal."""
    rows, columns = shape(grid)
    amount = 0
    for step in range(min(rows, columns)):
        amount += grid[step][step]
    return amount
