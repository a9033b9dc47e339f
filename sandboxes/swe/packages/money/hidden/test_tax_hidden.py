import pytest

from money import marginal_rate, net_income, tax

TWO = [(100, 10), (200, 30)]


def test_rates():
    assert [marginal_rate(n) for n in (0, 1500, 2999, 3000, 6000)] == [
        0,
        10,
        10,
        20,
        40,
    ]
    assert [marginal_rate(n, TWO) for n in (99, 100, 199, 200)] == [0, 10, 10, 30]


def test_taxes():
    assert tax(999) == 0
    assert tax(1100) == 10
    assert tax(3000) == 200
    assert tax(3100) == 220
    assert tax(6100) == 840
    assert tax(1009) == 0
    assert tax(1010) == 1


def test_given_brackets():
    assert tax(100, TWO) == 0
    assert tax(200, TWO) == 10
    assert tax(300, TWO) == 40
    assert tax(110, brackets=TWO) == 1
    assert tax(0, TWO) == 0
    with pytest.raises(ValueError):
        tax(-1, TWO)


def test_left():
    assert net_income(500) == 500
    assert net_income(3000) == 2800
    assert net_income(3000, 1) == 2850
    assert net_income(3000, 3) == 2950
    assert net_income(400, 1) == 400
    assert net_income(3000, children=1, allowance=1000) == 2900
