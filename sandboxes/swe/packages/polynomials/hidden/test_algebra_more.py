import pytest
from polynomials import add, multiply, power


def test_sums():
    assert add([], [1, 2]) == [1, 2]
    assert add([0, 0, 7], [1]) == [1, 0, 7]
    assert add([4, 4], [4, 4], -1) == []
    assert add([1, 1], [2, 3], 2) == [5, 7]


def test_products():
    assert multiply([0, 1], [0, 0, 1]) == [0, 0, 0, 1]
    assert multiply([3, 2], [5, 4]) == [15, 22, 8]
    assert multiply([0], [1, 1]) == []
    assert multiply([], [1]) == []
    assert multiply([1], []) == []


def test_powers():
    assert power([3], 4) == [81]
    assert power([2, 1], 2) == [4, 4, 1]
    assert power([], 0) == [1]
    for exponent in (-1, -3):
        with pytest.raises(ValueError):
            power([1, 1], exponent)
