import pytest
from almanac import next_weekday, parse_date, weekday


def test_week_days():
    assert weekday((2021, 8, 4)) == "Wed"
    assert weekday((1999, 12, 31)) == "Fri"
    assert weekday((2001, 1, 7)) == "Sun"


def test_next_days():
    assert next_weekday((2021, 8, 4), "Sun") == (2021, 8, 8)
    assert next_weekday((2021, 8, 4), "Mon") == (2021, 8, 9)
    assert next_weekday((2021, 8, 4), "Wed") == (2021, 8, 11)
    assert next_weekday((2021, 8, 4), "Wed", True) == (2021, 8, 4)
    assert next_weekday((2021, 8, 4), "Tue", True) == (2021, 8, 10)


def test_unknown_day():
    with pytest.raises(ValueError, match="unknown"):
        next_weekday((2021, 8, 4), "mon")


def test_parsed():
    assert parse_date("1999-12-31") == (1999, 12, 31)
    assert parse_date("2020.2.29", ".") == (2020, 2, 29)


def test_not_parsed():
    with pytest.raises(ValueError, match="three"):
        parse_date("1-2-3-4")
    for text in ("2021-04-31", "2021-14-01"):
        with pytest.raises(ValueError, match="no such"):
            parse_date(text)
