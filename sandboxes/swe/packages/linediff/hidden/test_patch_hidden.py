import pytest

from linediff import apply_diff, diff_lines, summary


def test_diffs():
    assert diff_lines([], []) == []
    assert diff_lines(["p", "q"], ["q"]) == [("-", "p"), (" ", "q")]
    assert diff_lines(["q"], ["p", "q", "r"]) == [("+", "p"), (" ", "q"), ("+", "r")]
    assert diff_lines(["a", "b"], ["c"]) == [("-", "a"), ("-", "b"), ("+", "c")]


def test_round_trip():
    old = ["one", "two", "three", "two", "one"]
    new = ["two", "one", "two", "four"]
    diff = diff_lines(old, new)
    assert apply_diff(old, diff) == new
    assert diff[:2] == [("+", "two"), (" ", "one")]
    assert summary(diff) == "+2 -3"


def test_apply():
    assert apply_diff(["a"], [("-", "a"), ("+", "b")]) == ["b"]
    assert apply_diff(("k",), [(" ", "k"), ("+", "l")]) == ["k", "l"]
    with pytest.raises(ValueError):
        apply_diff(["b"], [("-", "a"), ("+", "b")])
    with pytest.raises(ValueError):
        apply_diff([], [("-", "a")])


def test_sums():
    assert summary([("+", "a"), (" ", "b"), ("+", "c"), ("+", "d")]) == "+3 -0"
    assert summary([("-", "a"), ("+", "b"), ("-", "c"), (" ", "c")]) == "+1 -2"
