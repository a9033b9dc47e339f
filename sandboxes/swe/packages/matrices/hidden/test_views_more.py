import pytest
from matrices import column, identity, shape, transpose


def test_shapes():
    assert shape([[1], [2], [3]]) == (3, 1)
    assert shape([[1, 2]]) == (1, 2)
    assert shape([]) == (0, 0)


def test_ragged():
    with pytest.raises(ValueError):
        shape([[1], [2, 3]])
    with pytest.raises(ValueError):
        transpose([[1, 2, 3], [4]])


def test_columns():
    assert column([[7, 8, 9]], 2) == [9]
    assert column([[7, 8], [5, 4]], 0) == [7, 5]
    for index in (-1, 3):
        with pytest.raises(IndexError):
            column([[7, 8, 9]], index)


def test_turns():
    assert transpose([[1], [2]]) == [[1, 2]]
    assert transpose(transpose([[1, 2], [3, 4]])) == [[1, 2], [3, 4]]
    assert transpose([[5, 6]]) == [[5], [6]]


def test_diagonals():
    assert identity(0) == []
    assert identity(1, 5) == [[5]]
    assert identity(3)[1] == [0, 1, 0]
