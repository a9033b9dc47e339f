import pytest
from matrices import add, dot, multiply, scale


def test_add():
    assert add([[1, 2]], [[10, 20]]) == [[11, 22]]
    assert add([[5], [6]], [[1], [2]], sign=-1) == [[4], [4]]
    with pytest.raises(ValueError):
        add([[1, 2]], [[1], [2]])


def test_scale():
    assert scale([[1, -2], [3, 4]], 3) == [[3, -6], [9, 12]]
    assert scale([[1]], 0) == [[0]]


def test_dot():
    assert dot([1, 2, 3], [4, 5, 6]) == 32
    assert dot([], []) == 0
    with pytest.raises(ValueError):
        dot([1], [1, 2])


def test_multiply():
    assert multiply([[1, 2], [3, 4]], [[5, 6], [7, 8]]) == [[19, 22], [43, 50]]
    assert multiply([[2, 3]], [[1], [4]]) == [[14]]
    with pytest.raises(ValueError):
        multiply([[1, 2]], [[1, 2]])
