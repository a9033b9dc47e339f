import pytest
from matrices import determinant, minor, trace


def test_minors():
    assert minor([[1, 2], [3, 4]], 0, 1) == [[3]]
    assert minor([[1, 2], [3, 4]], 1, 0) == [[2]]
    assert minor([[1, 2, 3], [4, 5, 6]], 0, 1) == [[4, 6]]


def test_determinants():
    assert determinant([[5]]) == 5
    assert determinant([[1, 2], [3, 4]]) == -2
    assert determinant([[2, 1, 3], [0, 4, 5], [1, 0, 6]]) == 41
    assert determinant([]) == 1


def test_needs_square():
    with pytest.raises(ValueError):
        determinant([[1, 2]])
    with pytest.raises(ValueError):
        determinant([[1], [2]])


def test_traces():
    assert trace([[2, 0, 0], [0, 3, 0], [0, 0, 4]]) == 9
    assert trace([]) == 0
    assert trace([[8, 1, 2]]) == 8
