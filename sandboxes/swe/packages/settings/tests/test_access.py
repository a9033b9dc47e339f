import pytest

from settings import as_bool, as_int, lookup, merge

SECTIONS = {"main": {"size": "3", "name": "n"}, "web": {"size": "8"}}


def test_lookup():
    assert lookup(SECTIONS, "web", "size") == "8"
    assert lookup(SECTIONS, "web", "name") == "n"
    assert lookup(SECTIONS, "none", "size", "0") == "3"
    assert lookup(SECTIONS, "web", "other", "0") == "0"
    assert lookup({}, "web", "size") is None


def test_as_int():
    assert as_int("12") == 12
    assert as_int("5", 5, 5) == 5
    assert as_int("0", low=-1) == 0
    with pytest.raises(ValueError, match="not a whole number: x"):
        as_int("x")


def test_as_int_bounds():
    with pytest.raises(ValueError, match="too small"):
        as_int("4", low=5)
    with pytest.raises(ValueError, match="too large"):
        as_int("6", 0, 5)


def test_as_bool():
    assert as_bool(" Yes ") is True
    assert as_bool("off") is False
    with pytest.raises(ValueError):
        as_bool("maybe")


def test_merge():
    merged = merge(SECTIONS, {"web": {"size": "9"}, "db": {"host": "h"}})
    assert merged["web"] == {"size": "9"}
    assert merged["db"] == {"host": "h"}
    assert SECTIONS["web"] == {"size": "8"}
