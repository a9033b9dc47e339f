import pytest
from layout import align, justify, pad


def test_padded():
    assert pad("x", 3, ".") == "x.."
    assert pad("x", 3, ".", True) == "..x"
    assert pad("", 2) == "  "
    assert pad("xyz", 3, "-") == "xyz"


def test_pad_fill():
    for fill in ("", "ab"):
        with pytest.raises(ValueError):
            pad("x", 2, fill)


def test_aligned():
    assert align("abc", 4) == "abc "
    assert align("abc", 4, "right") == " abc"
    assert align("abc", 7, "center") == "  abc  "
    assert align("abc", 8, "center") == "  abc   "
    with pytest.raises(ValueError):
        align("abc", 4, "middle")


def test_justified():
    assert justify(["to", "be", "or"], 10) == "to  be  or"
    assert justify(["to", "be", "or"], 11) == "to   be  or"
    assert justify(["to", "be"], 2) == "to be"
    assert justify(["a", "b", "c", "d"], 9) == "a  b  c d"


def test_single_words():
    assert justify(["word"], 20) == "word"
    assert justify([], 1) == ""
