import pytest

from webquery import decode, encode


def test_encode():
    assert encode("abcXYZ019-_.") == "abcXYZ019-_."
    assert encode("a b") == "a+b"
    assert encode("a&b=c") == "a%26b%3Dc"
    assert encode("\n") == "%0A"


def test_decode():
    assert decode("plain") == "plain"
    assert decode("a+b%26c") == "a b&c"
    assert decode("%41%42x") == "ABx"
    assert decode("100%25") == "100%"


def test_decode_refuses():
    with pytest.raises(ValueError, match="cut off"):
        decode("50%2")
    with pytest.raises(ValueError):
        decode("%zz")
