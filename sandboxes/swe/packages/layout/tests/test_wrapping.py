import pytest
from layout import indent, shorten, wrap


def test_wrap():
    assert wrap("one two three", 7) == ["one two", "three"]
    assert wrap("one two three", 6) == ["one", "two", "three"]
    assert wrap("a longword b", 4) == ["a", "longword", "b"]
    assert wrap("", 5) == []


def test_wrap_width():
    assert wrap(" a  b ", 1) == ["a", "b"]
    with pytest.raises(ValueError):
        wrap("a", 0)


def test_indent():
    assert indent(["a", "b"]) == ["    a", "    b"]
    assert indent(["a", "", "b"], 2) == ["  a", "", "  b"]
    assert indent(["a", "b", "c"], 1, hanging=True) == ["a", " b", " c"]


def test_shorten():
    assert shorten("hello", 5) == "hello"
    assert shorten("hello world", 8) == "hello..."
    assert shorten("hello world", 9) == "hello..."
    assert shorten("hello", 4, mark="-") == "hel-"


def test_shorten_error():
    assert shorten("hello", 3) == "..."
    with pytest.raises(ValueError):
        shorten("hello", 2)
