import pytest

from money import marginal_rate, net_income, tax

FLAT = [(0, 25)]


def test_marginal_rate():
    assert marginal_rate(999) == 0
    assert marginal_rate(1000) == 10
    assert marginal_rate(5999) == 20
    assert marginal_rate(9000) == 40
    assert marginal_rate(1, FLAT) == 25


def test_tax():
    assert tax(1000) == 0
    assert tax(2000) == 100
    assert tax(4000) == 400
    assert tax(7000) == 1200


def test_tax_with_brackets():
    assert tax(200, FLAT) == 50
    assert tax(199, FLAT) == 49
    assert tax(30, [(10, 10), (20, 50)]) == 6
    assert tax(0) == 0
    with pytest.raises(ValueError):
        tax(-1)


def test_net_income():
    assert net_income(2000) == 1900
    assert net_income(2000, 1) == 1950
    assert net_income(2000, children=2, allowance=900) == 2000
    assert net_income(4000, 2) == 3800
