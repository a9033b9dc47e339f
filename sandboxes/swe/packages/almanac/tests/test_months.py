import pytest
from almanac import add_months, days_in_month, is_leap, is_valid


def test_is_leap():
    assert is_leap(2024) is True
    assert is_leap(2000) is True
    assert is_leap(1900) is False
    assert is_leap(2023) is False


def test_days_in_month():
    assert days_in_month(2024, 2) == 29
    assert days_in_month(2023, 2) == 28
    assert days_in_month(2024, 1) == 31
    assert days_in_month(2023, 12) == 31


def test_days_in_month_bad():
    with pytest.raises(ValueError):
        days_in_month(2024, 0)
    with pytest.raises(ValueError):
        days_in_month(2024, 13)


def test_is_valid():
    assert is_valid((2024, 4, 30)) is True
    assert is_valid((2024, 4, 31)) is False
    assert is_valid((2024, 4, 0)) is False
    assert is_valid((2024, 4, 1)) is True
    assert is_valid((2024, 13, 1)) is False


def test_add_months():
    assert add_months((2023, 11, 5), 3) == (2024, 2, 5)
    assert add_months((2024, 1, 31), 1) == (2024, 2, 29)
    assert add_months((2024, 3, 15), -3) == (2023, 12, 15)


def test_add_months_end():
    assert add_months((2024, 1, 30), 3, keep_end=False) == (2024, 4, 30)
    with pytest.raises(ValueError):
        add_months((2024, 1, 31), 3, keep_end=False)
