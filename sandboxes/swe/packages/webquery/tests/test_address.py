import pytest

from webquery import get_param, set_param, split_address


def test_split_address():
    assert split_address("a.example/b/c?d=1") == ("a.example", "/b/c", "d=1")
    assert split_address("a.example") == ("a.example", "", "")
    assert split_address("a.example/?x?y") == ("a.example", "/", "x?y")
    with pytest.raises(ValueError):
        split_address("/b")


def test_get_param():
    address = "a.example/b?x=1&x=2&x=3&y="
    assert get_param(address, "x") == "1"
    assert get_param(address, "x", last=True) == "3"
    assert get_param(address, "z") is None
    assert get_param(address, "z", "none") == "none"
    assert get_param(address, "y", "none") == ""


def test_set_param():
    assert set_param("a.example", "x", 1) == "a.example?x=1"
    assert set_param("a.example/p?x=1&x=2&b=3", "x", 5) == "a.example/p?b=3&x=5"
    assert set_param("a.example/p?x=1", "x", None) == "a.example/p"
    assert set_param("a.example/p?y=1", "x", None) == "a.example/p?y=1"
