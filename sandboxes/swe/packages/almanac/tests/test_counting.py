import pytest
from almanac import add_days, day_number, days_between


def test_day_number():
    assert day_number((2023, 1, 1)) == 1
    assert day_number((2023, 3, 1)) == 60
    assert day_number((2024, 12, 31)) == 366


def test_day_number_bad():
    with pytest.raises(ValueError):
        day_number((2023, 2, 29))
    with pytest.raises(ValueError):
        day_number((2023, 2, 0))


def test_days_between():
    assert days_between((2023, 1, 1), (2023, 1, 31)) == 30
    assert days_between((2023, 12, 31), (2024, 1, 1)) == 1
    assert days_between((2023, 1, 1), (2025, 1, 1)) == 731
    assert days_between((2024, 3, 1), (2024, 2, 28)) == -2


def test_add_days():
    assert add_days((2024, 2, 28), 1) == (2024, 2, 29)
    assert add_days((2023, 12, 31), 1) == (2024, 1, 1)
    assert add_days((2023, 11, 30), 31) == (2023, 12, 31)
    assert add_days((2023, 5, 5), 0) == (2023, 5, 5)


def test_add_days_back():
    with pytest.raises(ValueError):
        add_days((2023, 5, 5), -1)
