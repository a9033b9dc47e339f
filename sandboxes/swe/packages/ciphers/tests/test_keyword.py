import pytest
from ciphers import decrypt, encrypt


def test_encrypt():
    assert encrypt("aaaa", "abc") == "abca"
    assert encrypt("hello", "b") == "ifmmp"
    assert encrypt("Zoo", "CB") == "Bpq"


def test_encrypt_skips():
    assert encrypt("a b", "bc") == "b d"
    assert encrypt("1-2", "key") == "1-2"


def test_decrypt():
    assert decrypt("ifmmp", "b") == "hello"
    assert decrypt("abca", "abc") == "aaaa"
    assert decrypt(encrypt("Top, Hat!", "zebra"), "zebra") == "Top, Hat!"


def test_bad_keys():
    with pytest.raises(ValueError):
        encrypt("text", "")
    with pytest.raises(ValueError):
        decrypt("text", "k3y")
