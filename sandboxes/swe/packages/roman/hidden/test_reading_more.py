import pytest
from roman import is_roman, numeral, parse


def test_parse_many():
    for number in (1, 4, 9, 40, 99, 494, 1500, 2021, 3999):
        assert parse(numeral(number)) == number


def test_parse_case():
    assert parse("mmxi") == 2011
    assert parse("LXD") == 440


def test_parse_refuses():
    for text in ("", "Q", "X I"):
        with pytest.raises(ValueError):
            parse(text)


def test_strict_spelling():
    assert is_roman("XC") is True
    assert is_roman("I") is True
    assert is_roman("VX") is False
    assert is_roman("") is False


def test_limits():
    assert is_roman("MMMMI") is False
    assert is_roman("mmmcmxcix") is True
    assert is_roman("VX", strict=False) is True
    assert is_roman("", strict=False) is False
