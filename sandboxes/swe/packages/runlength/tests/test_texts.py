import pytest
from runlength import decode, encode


def test_encode():
    assert encode("aaab") == "3ab"
    assert encode("aabb") == "2a2b"
    assert encode("") == ""


def test_encode_minimum():
    assert encode("aabbb", minimum=3) == "aa3b"
    assert encode("ab", minimum=1) == "1a1b"


def test_encode_errors():
    with pytest.raises(ValueError):
        encode("a1")
    with pytest.raises(ValueError):
        encode("a", minimum=0)


def test_decode():
    assert decode("3ab") == "aaab"
    assert decode("12xy") == "x" * 12 + "y"
    assert decode("") == ""


def test_decode_open_count():
    with pytest.raises(ValueError):
        decode("a3")
