import pytest

from linediff import apply_diff, diff_lines, summary

OLD = ["a", "b", "c"]
NEW = ["a", "x", "c", "d"]
DIFF = [(" ", "a"), ("-", "b"), ("+", "x"), (" ", "c"), ("+", "d")]


def test_diff_lines():
    assert diff_lines(OLD, NEW) == DIFF
    assert diff_lines(["a"], ["a"]) == [(" ", "a")]
    assert diff_lines([], ["n"]) == [("+", "n")]
    assert diff_lines(["o"], []) == [("-", "o")]


def test_diff_of_equal_lines():
    assert diff_lines(["a", "a"], ["a"]) == [(" ", "a"), ("-", "a")]
    assert diff_lines(["b", "a"], ["a", "a"])[0] == ("-", "b")


def test_apply_diff():
    assert apply_diff(OLD, DIFF) == NEW
    assert apply_diff([], []) == []
    with pytest.raises(ValueError):
        apply_diff(["a", "b"], DIFF)


def test_summary():
    assert summary(DIFF) == "+2 -1"
    assert summary([]) == "+0 -0"
    assert summary([("-", "a"), ("-", "b"), (" ", "c")]) == "+0 -2"
