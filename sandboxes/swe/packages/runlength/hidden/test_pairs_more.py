import pytest
from runlength import expand, find_runs


def test_runs_of_numbers():
    assert find_runs([7, 7, 7, 8]) == [(7, 3), (8, 1)]
    assert find_runs([1, 2, 2]) == [(1, 1), (2, 2)]
    assert find_runs([]) == []


def test_runs_start_with_none():
    assert find_runs([None]) == [(None, 1)]
    assert find_runs("zz") == [("z", 2)]


def test_expand_round_trip():
    for text in ("", "a", "aabbbc"):
        assert "".join(expand(find_runs(text))) == text


def test_expand_limits():
    assert expand([(1, 2), (2, 2)], 3) == [1, 1, 2]
    assert expand([(1, 1)], 9) == [1]
    assert expand([(4, 3)], 0) == []
    with pytest.raises(ValueError):
        expand([("q", 1), ("r", 0)])
