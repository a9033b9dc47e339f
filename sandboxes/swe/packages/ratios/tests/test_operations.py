import pytest
from ratios import add, compare, divide, multiply


def test_add():
    assert add((1, 2), (1, 3)) == (5, 6)
    assert add((1, 4), (1, 4)) == (1, 2)
    assert add((3, 4), (1, 6), sign=-1) == (7, 12)


def test_multiply():
    assert multiply((2, 3), (3, 4)) == (1, 2)
    assert multiply((1, 2), (1, 2), (1, 2)) == (1, 8)
    assert multiply() == (1, 1)


def test_divide():
    assert divide((1, 2), (3, 5)) == (5, 6)
    assert divide((3, 4), (-1, 4)) == (-3, 1)
    with pytest.raises(ZeroDivisionError, match="division"):
        divide((1, 2), (0, 1))


def test_compare():
    assert compare((1, 2), (1, 3)) == 1
    assert compare((1, 3), (2, 5)) == -1
    assert compare((2, 4), (1, 2)) == 0
    assert compare((4, 1), (3, 1)) == 1
    assert compare((3, 1), (4, 1)) == -1
