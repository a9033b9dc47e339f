import pytest

from money import discount, parse_cents, show_cents


def test_parse_cents():
    assert parse_cents("1,234.50") == 123450
    assert parse_cents(" -3 ") == -300
    assert parse_cents("0.07") == 7
    assert parse_cents("-0.50") == -50


def test_parse_cents_refuses():
    for text in ("1.5", "1.", "2.345", "x", ".50", "", "--1"):
        with pytest.raises(ValueError):
            parse_cents(text)


def test_show_cents():
    assert show_cents(123450) == "1,234.50"
    assert show_cents(-5, "$") == "-$0.05"
    assert show_cents(0) == "0.00"


def test_discount():
    assert discount(1000, 15) == 850
    assert discount(250, 1) == 248
    assert discount(50, 1) == 50
    assert discount(1000, 100) == 0
    assert discount(1000, 90, 300) == 300


def test_discount_refuses():
    assert discount(99, 0) == 99
    for percent in (-1, 101):
        with pytest.raises(ValueError):
            discount(100, percent)
