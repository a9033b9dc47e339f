import pytest
from layout import indent, shorten, wrap


def test_wrapped_lines():
    text = "the quick brown fox jumps"
    assert wrap(text, 9) == ["the quick", "brown fox", "jumps"]
    assert wrap(text, 8) == ["the", "quick", "brown", "fox", "jumps"]
    assert wrap("word", 1) == ["word"]
    assert wrap("   ", 3) == []


def test_wrap_refuses():
    for width in (0, -2):
        with pytest.raises(ValueError):
            wrap("x", width)


def test_indented():
    assert indent(["x"]) == ["    x"]
    assert indent(["x", "y"], 3) == ["   x", "   y"]
    assert indent(["x", "", "z"], 2, True) == ["x", "", "  z"]


def test_shortened():
    assert shorten("abcdefgh", 7) == "abcd..."
    assert shorten("ab cdefgh", 6) == "ab..."
    assert shorten("abc", 3) == "abc"
    assert shorten("abcde", 3, "+") == "ab+"


def test_no_room():
    assert shorten("abcdef", 3) == "..."
    with pytest.raises(ValueError):
        shorten("abcdef", 1)
