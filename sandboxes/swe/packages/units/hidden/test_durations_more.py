import pytest
from units import format_duration, parse_duration


def test_written():
    assert format_duration(7384) == "2h 3m 4s"
    assert format_duration(59) == "0h 0m 59s"
    assert format_duration(3600) == "1h 0m 0s"


def test_written_short():
    assert format_duration(7205, True) == "2h 5s"
    assert format_duration(61, True) == "1m 1s"
    assert format_duration(0, True) == "0s"
    with pytest.raises(ValueError):
        format_duration(-60)


def test_negative():
    with pytest.raises(ValueError):
        format_duration(-1, short=True)


def test_read_back():
    for seconds in (0, 1, 59, 61, 3599, 3661, 90000):
        assert parse_duration(format_duration(seconds)) == seconds


def test_not_read():
    for text in ("   ", "7", "1h 3h", "2s 2s", "4d"):
        with pytest.raises(ValueError):
            parse_duration(text)
