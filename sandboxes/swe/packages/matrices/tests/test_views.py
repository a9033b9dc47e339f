import pytest
from matrices import column, identity, shape, transpose


def test_shape():
    assert shape([[1, 2, 3], [4, 5, 6]]) == (2, 3)
    assert shape([]) == (0, 0)
    with pytest.raises(ValueError):
        shape([[1, 2], [3]])


def test_column():
    assert column([[1, 2], [3, 4], [5, 6]], 1) == [2, 4, 6]
    assert column([[1, 2], [3, 4]], 0) == [1, 3]


def test_column_missing():
    with pytest.raises(IndexError):
        column([[1, 2]], 2)
    with pytest.raises(IndexError):
        column([[1, 2]], -1)


def test_transpose():
    assert transpose([[1, 2, 3], [4, 5, 6]]) == [[1, 4], [2, 5], [3, 6]]
    assert transpose([]) == []


def test_identity():
    assert identity(2) == [[1, 0], [0, 1]]
    assert identity(3, 7) == [[7, 0, 0], [0, 7, 0], [0, 0, 7]]
