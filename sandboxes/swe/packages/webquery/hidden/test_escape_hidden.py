import pytest

from webquery import decode, encode


def test_escapes():
    assert encode("1+1") == "1%2B1"
    assert encode("50 %") == "50+%25"
    assert encode("") == ""
    assert encode("\t") == "%09"
    assert encode("z/?") == "z%2F%3F"


def test_plain_again():
    assert decode("1%2B1") == "1+1"
    assert decode("x%20y+z") == "x y z"
    assert decode("") == ""
    assert decode("%2f%2Fa") == "//a"


def test_round_trip():
    text = "a=b & c/d? 100%"
    assert decode(encode(text)) == text


def test_bad_escapes():
    for text in ("%", "a%4", "%41%4", "%g1"):
        with pytest.raises(ValueError):
            decode(text)
    assert decode("a%41") == "aA"
