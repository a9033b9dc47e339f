import pytest
from ciphers import decrypt, encrypt


def test_known_text():
    assert encrypt("attack", "lemon") == "lxfopv"
    assert encrypt("ABBA", "ab") == "ACBB"


def test_spaces_do_not_count():
    assert encrypt("a, a.", "bd") == "b, d."
    assert encrypt("", "x") == ""


def test_back():
    assert decrypt("lxfopv", "Lemon") == "attack"
    assert decrypt("b d", "bc") == "a b"


def test_refused_keys():
    with pytest.raises(ValueError):
        encrypt("x", "a b")
    with pytest.raises(ValueError):
        decrypt("x", "")
