import pytest
from almanac import add_months, days_in_month, is_leap, is_valid


def test_leap_years():
    leap = [year for year in (1600, 1700, 1996, 1999, 2100, 2104) if is_leap(year)]
    assert leap == [1600, 1996, 2104]
    assert is_leap(2400) is True


def test_month_lengths():
    assert [days_in_month(2021, month) for month in (1, 4, 9, 12)] == [31, 30, 30, 31]
    assert days_in_month(1900, 2) == 28
    assert days_in_month(2000, 2) == 29
    for month in (-1, 0, 13):
        with pytest.raises(ValueError):
            days_in_month(2021, month)


def test_valid_dates():
    assert is_valid((2021, 1, 1)) is True
    assert is_valid((2021, 2, 29)) is False
    assert is_valid((2020, 2, 29)) is True
    assert is_valid((2021, 0, 5)) is False
    assert is_valid((2021, 7, 0)) is False


def test_moved_months():
    assert add_months((2021, 12, 31), 2) == (2022, 2, 28)
    assert add_months((2021, 1, 10), -1) == (2020, 12, 10)
    assert add_months((2021, 6, 10), 24) == (2023, 6, 10)
    assert add_months((2019, 12, 31), 2) == (2020, 2, 29)


def test_month_end_refused():
    assert add_months((2021, 3, 30), 1, False) == (2021, 4, 30)
    with pytest.raises(ValueError):
        add_months((2021, 3, 31), 1, False)
