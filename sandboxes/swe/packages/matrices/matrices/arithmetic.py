"""Sums and products of matrices."""

from matrices.views import shape, transpose


def add(left, right, sign=1):
    """Return left + right, or left - right with sign=-1."""
    if shape(left) != shape(right):
        raise ValueError("the shapes differ")
    total = []
    for upper, lower in zip(left, right):
        total.append([a + sign * b for a, b in zip(upper, lower)])
    return total


def scale(matrix, factor):
    """Return matrix with every entry multiplied by factor."""
    return [[entry * factor for entry in row] for row in matrix]


def dot(first, second):
    """Return the scalar product of two equally long lists."""
    if len(first) != len(second):
        raise ValueError("the lengths differ")
    product = 0
    for index in range(len(first)):
        product += first[index] * second[index]
    return product


def multiply(left, right):
    """Return the matrix product of left and right."""
    columns = transpose(right)
    rows = []
    for line in left:
        rows.append([dot(line, column) for column in columns])
    return rows
