import pytest
from heaps import heap_sort, merge_sorted, smallest


def test_sorts():
    assert heap_sort([2, 1]) == [1, 2]
    assert heap_sort("heaps") == ["a", "e", "h", "p", "s"]
    assert heap_sort([1, 2, 3, 4], True) == [4, 3, 2, 1]
    assert heap_sort([6, 2, 6, 1, 0, 9, 5]) == [0, 1, 2, 5, 6, 6, 9]


def test_least():
    assert smallest([5, 1, 4]) == [1]
    assert smallest([5, 1, 4], 9) == [1, 4, 5]
    assert smallest([5, 1, 4], 0) == []
    for count in (-1, -2):
        with pytest.raises(ValueError):
            smallest([5, 1, 4], count)


def test_merges():
    assert merge_sorted([3, 6], [1, 9], [2]) == [1, 2, 3, 6, 9]
    assert merge_sorted([], [4, 4]) == [4, 4]
    assert merge_sorted([5, 6], []) == [5, 6]
