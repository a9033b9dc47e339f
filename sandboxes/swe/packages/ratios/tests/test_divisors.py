import pytest
from ratios import gcd, lcm, reduce


def test_gcd():
    assert gcd(12, 18) == 6
    assert gcd(7, 5) == 1
    assert gcd(-8, 4) == 4
    assert gcd(0, 9) == 9


def test_lcm():
    assert lcm(4, 6) == 12
    assert lcm(2, 3, 5) == 30
    assert lcm(3, 0) == 0
    assert lcm(0, 0) == 0
    assert lcm() == 1
    assert lcm(-4, 10) == 20


def test_reduce():
    assert reduce(6, 8) == (3, 4)
    assert reduce(5) == (5, 1)
    assert reduce(3, -6) == (-1, 2)
    assert reduce(2, -1) == (-2, 1)
    assert reduce(0, 7) == (0, 1)


def test_reduce_zero():
    with pytest.raises(ZeroDivisionError, match="denominator"):
        reduce(1, 0)
