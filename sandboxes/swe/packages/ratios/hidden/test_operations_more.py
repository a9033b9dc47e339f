import pytest
from ratios import add, compare, divide, multiply


def test_sums():
    assert add((2, 5), (3, 10)) == (7, 10)
    assert add((1, 1), (-1, 1)) == (0, 1)
    assert add((5, 6), (1, 4), -1) == (7, 12)


def test_products():
    assert multiply((5, 7)) == (5, 7)
    assert multiply((4, 9), (3, 8)) == (1, 6)
    assert multiply((2, 1), (3, 1), (1, 5)) == (6, 5)
    assert multiply() == (1, 1)


def test_quotients():
    assert divide((2, 3), (4, 9)) == (3, 2)
    assert divide((0, 4), (2, 3)) == (0, 1)
    for zero in ((0, 1), (0, 5)):
        with pytest.raises(ZeroDivisionError, match="division"):
            divide((3, 4), zero)


def test_orders():
    assert compare((5, 6), (7, 9)) == 1
    assert compare((-1, 2), (1, 2)) == -1
    assert compare((3, 9), (1, 3)) == 0
    assert compare((2, 1), (1, 1)) == 1
    assert compare((0, 1), (1, 1)) == -1
