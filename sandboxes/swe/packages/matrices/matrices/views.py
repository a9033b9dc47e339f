"""Look at a matrix in other ways."""


def shape(matrix):
    """Return (rows, columns); raise ValueError if the rows differ in length."""
    if not matrix:
        return 0, 0
    width = len(matrix[0])
    for row in matrix:
        if len(row) != width:
            raise ValueError("rows of different lengths")
    return len(matrix), width


def column(matrix, index):
    """Return one column as a list, counted from 0."""
    columns = shape(matrix)[1]
    if index < 0 or index >= columns:
        raise IndexError("no such column")
    return [line[index] for line in matrix]


def transpose(grid):
    """Return the matrix whose rows are the columns of grid."""
    width = shape(grid)[1]
    return [column(grid, place) for place in range(width)]


def identity(size, value=1):
    """Return a square matrix with value on the diagonal and 0 elsewhere."""
    result = []
    for number in range(size):
        row = [0] * size
        row[number] = value
        result.append(row)
    return result
