import pytest
from matrices import add, dot, identity, multiply, scale


def test_sums():
    assert add([[1, 1], [2, 2]], [[3, 4], [5, 6]]) == [[4, 5], [7, 8]]
    assert add([[3, 9]], [[1, 4]], -1) == [[2, 5]]
    with pytest.raises(ValueError):
        add([[1]], [[1, 2]])


def test_scaled():
    assert scale([[2, 5]], 4) == [[8, 20]]
    assert scale([], 4) == []


def test_dots():
    assert dot([2], [7]) == 14
    assert dot([1, -1], [3, 5]) == -2
    with pytest.raises(ValueError):
        dot([1, 2, 3], [1, 2])


def test_products():
    grid = [[4, 7], [2, 6]]
    assert multiply(grid, identity(2)) == grid
    assert multiply([[1], [2]], [[3, 4]]) == [[3, 4], [6, 8]]
    with pytest.raises(ValueError):
        multiply([[1]], [[1], [2]])
