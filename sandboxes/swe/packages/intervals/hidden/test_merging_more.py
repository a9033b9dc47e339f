import pytest
from intervals import insert, merge


def test_merge_chains():
    assert merge([(1, 4), (3, 6), (5, 7)]) == [(1, 7)]
    assert merge([(10, 12), (0, 1)]) == [(0, 1), (10, 12)]
    assert merge([(0, 5), (5, 6)]) == [(0, 6)]
    assert merge([(0, 8), (1, 2), (3, 9)]) == [(0, 9)]


def test_merge_near():
    assert merge([(0, 1), (4, 5)], 3) == [(0, 5)]
    assert merge([(0, 1), (4, 5)], 2) == [(0, 1), (4, 5)]
    assert merge([(0, 1), (2, 3)]) == [(0, 1), (2, 3)]


def test_merge_refuses():
    assert merge([(1, 1)]) == [(1, 1)]
    with pytest.raises(ValueError):
        merge([(0, 1), (9, 2)])


def test_inserts():
    assert insert([(1, 2)], 5, 3) == [(1, 2), (5, 8)]
    assert insert([(5, 9)], 2, 3) == [(2, 9)]
    assert insert([(3, 5)], 1, 0) == [(3, 5)]
    assert insert([], 6, 1) == [(6, 7)]
    with pytest.raises(ValueError):
        insert([(1, 2)], 0, -2)


def test_insert_keeps_input():
    given = [(1, 2)]
    insert(given, 7, 1)
    assert given == [(1, 2)]
