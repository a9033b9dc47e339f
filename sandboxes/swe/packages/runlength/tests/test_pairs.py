import pytest
from runlength import expand, find_runs


def test_find_runs():
    assert find_runs("aab") == [("a", 2), ("b", 1)]
    assert find_runs("abba") == [("a", 1), ("b", 2), ("a", 1)]
    assert find_runs("ccc") == [("c", 3)]


def test_find_runs_empty():
    assert find_runs("") == []
    assert find_runs([None, None, 1]) == [(None, 2), (1, 1)]


def test_expand():
    assert expand([("x", 2), ("y", 1)]) == ["x", "x", "y"]
    assert expand([("x", 5)], limit=3) == ["x", "x", "x"]
    assert expand([("x", 2)], limit=0) == []


def test_expand_bad_count():
    with pytest.raises(ValueError):
        expand([("x", 0)])
