import pytest

from clusters import friend_circles, has_cycle, merges_needed


def test_friend_circles():
    pairs = [("d", "a"), ("c", "b")]
    assert friend_circles("abcde", pairs) == [["a", "d"], ["b", "c"], ["e"]]
    assert friend_circles([], []) == []
    assert friend_circles([3, 1, 2], [(1, 2), (2, 3)]) == [[1, 2, 3]]


def test_has_cycle():
    assert has_cycle([(1, 2), (2, 3), (3, 1)])
    assert has_cycle([(1, 2), (2, 3), (3, 4)]) is False
    assert has_cycle([(1, 2), (3, 4), (2, 4), (1, 3)])
    assert has_cycle([]) is False


def test_merges_needed():
    assert merges_needed([1, 2, 3, 4], [(1, 2)]) == 2
    assert merges_needed([1, 2, 3, 4], [(1, 2)], 2) == 1
    assert merges_needed([1, 2], [], 3) == 0
    with pytest.raises(ValueError):
        merges_needed([1, 2], [], 0)
