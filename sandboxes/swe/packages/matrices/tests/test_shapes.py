import pytest
from matrices import determinant, minor, trace


def test_minor():
    square = [[1, 2, 3], [4, 5, 6], [7, 8, 9]]
    assert minor(square, 0, 0) == [[5, 6], [8, 9]]
    assert minor(square, 1, 2) == [[1, 2], [7, 8]]


def test_determinant():
    assert determinant([[3, 8], [4, 6]]) == -14
    assert determinant([[2, 0, 1], [1, 3, 2], [1, 1, 1]]) == 0
    assert determinant([[6, 1, 1], [4, -2, 5], [2, 8, 7]]) == -306
    assert determinant([]) == 1


def test_determinant_not_square():
    with pytest.raises(ValueError):
        determinant([[1, 2, 3], [4, 5, 6]])


def test_trace():
    assert trace([[1, 9], [9, 2]]) == 3
    assert trace([[1, 2, 3], [4, 5, 6]]) == 6
    assert trace([[4], [5]]) == 4
