import pytest
from runlength import decode, encode


def test_round_trip():
    for text in ("", "z", "hello", "ooooooooooooh", "mmnn"):
        assert decode(encode(text)) == text


def test_encode_forms():
    assert encode("heeey") == "h3ey"
    assert encode("zz") == "2z"
    assert encode("zz", 3) == "zz"
    assert encode("z", 1) == "1z"


def test_encode_refuses():
    with pytest.raises(ValueError):
        encode("22")
    with pytest.raises(ValueError):
        encode("ab", 0)


def test_decode_forms():
    assert decode("10a2b") == "a" * 10 + "bb"
    assert decode("q") == "q"
    with pytest.raises(ValueError):
        decode("2")
