import pytest
from polynomials import add, multiply, power


def test_add():
    assert add([1, 2], [3, 4, 5]) == [4, 6, 5]
    assert add([1, 2, 3], [1]) == [2, 2, 3]
    assert add([5, 1], [2, 1], factor=-1) == [3]
    assert add([1], [2], 3) == [7]


def test_multiply():
    assert multiply([1, 1], [1, -1]) == [1, 0, -1]
    assert multiply([2], [1, 2, 3]) == [2, 4, 6]
    assert multiply([1, 2], []) == []
    assert multiply([], [3]) == []


def test_power():
    assert power([1, 1], 3) == [1, 3, 3, 1]
    assert power([4, 2], 0) == [1]
    assert power([0, 2], 1) == [0, 2]
    with pytest.raises(ValueError):
        power([1], -1)
