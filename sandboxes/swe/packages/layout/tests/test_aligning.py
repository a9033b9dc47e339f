import pytest
from layout import align, justify, pad


def test_pad():
    assert pad("ab", 4) == "ab  "
    assert pad("7", 3, "0", left=True) == "007"
    assert pad("long", 2) == "long"
    with pytest.raises(ValueError):
        pad("a", 3, "--")


def test_align():
    assert align("ab", 5) == "ab   "
    assert align("ab", 5, "right") == "   ab"
    assert align("ab", 6, "center") == "  ab  "
    assert align("ab", 5, "center") == " ab  "


def test_align_side():
    with pytest.raises(ValueError):
        align("ab", 5, "top")


def test_justify():
    assert justify(["a", "b", "c"], 7) == "a  b  c"
    assert justify(["a", "b", "c"], 6) == "a  b c"
    assert justify(["one"], 9) == "one"
    assert justify([], 9) == ""


def test_justify_narrow():
    assert justify(["abc", "de"], 3) == "abc de"
    assert justify(["a", "b"], 5) == "a   b"
