import pytest
from intervals import insert, merge


def test_merge():
    assert merge([(5, 8), (1, 3), (2, 4)]) == [(1, 4), (5, 8)]
    assert merge([(1, 9), (2, 3)]) == [(1, 9)]
    assert merge([(1, 2), (2, 3)]) == [(1, 3)]
    assert merge([]) == []


def test_merge_distance():
    assert merge([(1, 2), (4, 5)], distance=2) == [(1, 5)]
    assert merge([(1, 2), (4, 5)], distance=1) == [(1, 2), (4, 5)]
    assert merge([(1, 2), (3, 5)]) == [(1, 2), (3, 5)]


def test_merge_bad():
    assert merge([(3, 3)]) == [(3, 3)]
    with pytest.raises(ValueError):
        merge([(4, 3)])


def test_insert():
    assert insert([(1, 3), (6, 9)], 3, 2) == [(1, 5), (6, 9)]
    assert insert([(1, 2)], 4, 0) == [(1, 2)]
    assert insert([(2, 4)], 8, 1) == [(2, 4), (8, 9)]
    with pytest.raises(ValueError):
        insert([], 4, -1)
