import pytest
from roman import is_roman, parse


def test_parse():
    assert parse("III") == 3
    assert parse("XIV") == 14
    assert parse("MCMLXXXIV") == 1984
    assert parse("cdl") == 450


def test_parse_bad():
    with pytest.raises(ValueError):
        parse("")
    with pytest.raises(ValueError):
        parse("XAX")


def test_is_roman():
    assert is_roman("xiv") is True
    assert is_roman("IIII") is False
    assert is_roman("hello") is False


def test_is_roman_loose():
    assert is_roman("IIII", strict=False) is True
    assert is_roman("ABC", strict=False) is False
    assert is_roman("MMMM") is False
    assert is_roman("I") is True
    assert is_roman("MMMCMXCIX") is True
