import pytest
from units import format_duration, parse_duration


def test_format_duration():
    assert format_duration(3725) == "1h 2m 5s"
    assert format_duration(60) == "0h 1m 0s"
    assert format_duration(0) == "0h 0m 0s"


def test_format_short():
    assert format_duration(3600, short=True) == "1h"
    assert format_duration(62, short=True) == "1m 2s"
    assert format_duration(0, short=True) == "0s"
    with pytest.raises(ValueError):
        format_duration(-1)


def test_parse_duration():
    assert parse_duration("1h 2m 5s") == 3725
    assert parse_duration("90s") == 90
    assert parse_duration("0s") == 0
    assert parse_duration("3m 1h") == 3780


def test_parse_duration_errors():
    for text in ("", " ", "5x", "1m 2m"):
        with pytest.raises(ValueError):
            parse_duration(text)
