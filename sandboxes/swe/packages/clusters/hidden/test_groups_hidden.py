import pytest

from clusters import friend_circles, has_cycle, merges_needed


def test_circles():
    assert friend_circles([1, 2], []) == [[1], [2]]
    assert friend_circles([4, 3, 2, 1], [(4, 1), (3, 1)]) == [[1, 3, 4], [2]]
    with pytest.raises(KeyError):
        friend_circles([1], [(1, 2)])


def test_cycles():
    assert has_cycle([("a", "b"), ("a", "b")]) is True
    assert has_cycle([("a", "a")]) is True
    assert has_cycle([("a", "b"), ("c", "d"), ("b", "c")]) is False
    assert has_cycle([("a", "b"), ("c", "d"), ("b", "c"), ("d", "a")]) is True


def test_merges():
    assert merges_needed("abc", []) == 2
    assert merges_needed("abc", [("a", "b"), ("b", "c")]) == 0
    assert merges_needed("abcd", [("a", "b")], circles_wanted=3) == 0
    assert merges_needed("abcd", [], circles_wanted=3) == 1
    with pytest.raises(ValueError):
        merges_needed("abc", [], -1)
    with pytest.raises(ValueError):
        merges_needed("abc", [], 0)
