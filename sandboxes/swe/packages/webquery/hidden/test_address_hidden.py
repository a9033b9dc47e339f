import pytest

from webquery import get_param, set_param, split_address


def test_parts():
    assert split_address("h.example/") == ("h.example", "/", "")
    assert split_address("h.example?q") == ("h.example", "", "q")
    assert split_address("h.example?q=/x/") == ("h.example", "", "q=/x/")
    for address in ("", "?q=1"):
        with pytest.raises(ValueError):
            split_address(address)


def test_reading():
    address = "h.example/p?n=7&m=8&n=9"
    assert get_param(address, "n") == "7"
    assert get_param(address, "n", None, True) == "9"
    assert get_param(address, "m", last=True) == "8"
    assert get_param(address, "o", 5) == 5
    assert get_param("h.example", "n") is None


def test_writing():
    assert set_param("h.example/p", "k", "a b") == "h.example/p?k=a+b"
    assert set_param("h.example?k=1&j=2", "k", None) == "h.example?j=2"
    assert set_param("h.example/?k=1", "j", 0) == "h.example/?j=0&k=1"
    assert set_param("h.example", "k", None) == "h.example"
