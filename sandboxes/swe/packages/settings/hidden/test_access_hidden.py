import pytest

from settings import as_bool, as_int, lookup, merge


def test_values():
    sections = {"main": {"a": "1"}, "s": {"a": "2", "b": ""}}
    assert lookup(sections, "s", "a") == "2"
    assert lookup(sections, "s", "b", "x") == ""
    assert lookup(sections, "t", "a", "x") == "1"
    assert lookup(sections, "t", "b", "x") == "x"
    assert lookup({"s": {}}, "s", "a") is None


def test_numbers():
    assert as_int("-3") == -3
    assert as_int(" 7 ", low=7) == 7
    assert as_int("7", high=7) == 7
    for text, low, high in [("1.5", None, None), ("2", 3, None), ("2", None, 1)]:
        with pytest.raises(ValueError):
            as_int(text, low, high)


def test_zero_bounds():
    with pytest.raises(ValueError, match="too small"):
        as_int("-1", 0, 9)
    with pytest.raises(ValueError, match="too large"):
        as_int("1", high=0)


def test_words():
    assert [as_bool(w) for w in ("ON", "true", "1", "yes")] == [True] * 4
    assert [as_bool(w) for w in ("No", "FALSE ", "0", "off")] == [False] * 4
    with pytest.raises(ValueError, match="neither yes nor no: Y"):
        as_bool("Y")


def test_merging():
    base = {"a": {"x": "1", "y": "1"}}
    assert merge(base, {"a": {"y": "2"}}) == {"a": {"x": "1", "y": "2"}}
    assert base == {"a": {"x": "1", "y": "1"}}
    assert merge({}, {"b": {"k": "v"}}) == {"b": {"k": "v"}}
    assert merge(base, {}) == base
