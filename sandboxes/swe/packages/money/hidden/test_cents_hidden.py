import pytest

from money import discount, parse_cents, show_cents


def test_reading():
    assert parse_cents("12") == 1200
    assert parse_cents("12.34") == 1234
    assert parse_cents(" -7.05") == -705
    assert parse_cents("-1,000.01") == -100001
    assert parse_cents("1,000,000") == 100000000


def test_bad_amounts():
    with pytest.raises(ValueError, match="two digits"):
        parse_cents("3.1")
    with pytest.raises(ValueError, match="two digits"):
        parse_cents("3.141")
    with pytest.raises(ValueError, match="not an amount: a"):
        parse_cents("a.00")
    with pytest.raises(ValueError):
        parse_cents("-")


def test_writing():
    assert show_cents(99) == "0.99"
    assert show_cents(100) == "1.00"
    assert show_cents(-123456, sign="E") == "-E1,234.56"
    assert show_cents(1) == "0.01"
    assert show_cents(0, "E") == "E0.00"
    assert show_cents(100000) == "1,000.00"


def test_prices():
    assert discount(333, 50) == 167
    assert discount(149, 1) == 148
    assert discount(200, 0) == 200
    assert discount(200, 100) == 0
    assert discount(200, 100, least=1) == 1
    assert discount(200, 50, 100) == 100


def test_bad_percents():
    with pytest.raises(ValueError):
        discount(200, 101)
    with pytest.raises(ValueError):
        discount(200, -1)
