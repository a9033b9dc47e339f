import pytest
from ratios import gcd, lcm, reduce


def test_common_divisors():
    assert gcd(100, 75) == 25
    assert gcd(17, 0) == 17
    assert gcd(0, 0) == 0
    assert gcd(6, -15) == 3


def test_multiples():
    assert lcm(8, 12) == 24
    assert lcm(7) == 7
    assert lcm(0, 0, 2) == 0
    assert lcm(6, 10, 15) == 30
    assert lcm(-6, 4) == 12


def test_lowest_terms():
    assert reduce(10, 15) == (2, 3)
    assert reduce(-9, -12) == (3, 4)
    assert reduce(-8, 6) == (-4, 3)
    assert reduce(4) == (4, 1)
    assert reduce(5, -1) == (-5, 1)


def test_zero_below():
    with pytest.raises(ZeroDivisionError, match="denominator"):
        reduce(0, 0)
