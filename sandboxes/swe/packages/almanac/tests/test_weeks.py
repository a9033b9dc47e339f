import pytest
from almanac import next_weekday, parse_date, weekday


def test_weekday():
    assert weekday((2001, 1, 1)) == "Mon"
    assert weekday((2024, 2, 29)) == "Thu"
    assert weekday((2000, 12, 31)) == "Sun"


def test_next_weekday():
    assert next_weekday((2024, 2, 29), "Fri") == (2024, 3, 1)
    assert next_weekday((2024, 2, 29), "Wed") == (2024, 3, 6)
    assert next_weekday((2024, 2, 29), "Thu") == (2024, 3, 7)
    assert next_weekday((2024, 2, 29), "Thu", today=True) == (2024, 2, 29)


def test_next_weekday_name():
    with pytest.raises(ValueError, match="unknown"):
        next_weekday((2024, 2, 29), "Someday")


def test_parse_date():
    assert parse_date("2024-02-29") == (2024, 2, 29)
    assert parse_date("2023/1/9", "/") == (2023, 1, 9)


def test_parse_date_errors():
    with pytest.raises(ValueError, match="three"):
        parse_date("2024-02")
    with pytest.raises(ValueError, match="no such"):
        parse_date("2023-02-29")
