import pytest
from almanac import add_days, day_number, days_between


def test_numbers():
    assert day_number((2021, 1, 31)) == 31
    assert day_number((2020, 2, 29)) == 60
    assert day_number((2020, 3, 1)) == 61
    assert day_number((2021, 12, 31)) == 365


def test_no_such_day():
    for date in ((2021, 1, 32), (2021, 1, 0), (2021, 4, 31)):
        with pytest.raises(ValueError):
            day_number(date)


def test_differences():
    assert days_between((2020, 2, 28), (2020, 3, 1)) == 2
    assert days_between((2019, 7, 1), (2021, 7, 1)) == 731
    assert days_between((2021, 7, 1), (2021, 6, 1)) == -30
    assert days_between((2021, 7, 1), (2021, 7, 1)) == 0


def test_later_dates():
    assert add_days((2021, 1, 31), 1) == (2021, 2, 1)
    assert add_days((2021, 1, 1), 365) == (2022, 1, 1)
    assert add_days((2020, 1, 1), 365) == (2020, 12, 31)
    assert add_days((2020, 2, 27), 2) == (2020, 2, 29)
    assert add_days((2021, 8, 9), 0) == (2021, 8, 9)
    with pytest.raises(ValueError):
        add_days((2021, 8, 9), -1)
