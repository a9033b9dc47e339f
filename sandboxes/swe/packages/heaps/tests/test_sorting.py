import pytest
from heaps import heap_sort, merge_sorted, smallest


def test_heap_sort():
    assert heap_sort([3, 1, 2]) == [1, 2, 3]
    assert heap_sort([5, 3, 8, 1, 9, 2]) == [1, 2, 3, 5, 8, 9]
    assert heap_sort([4, 7, 4, 1], descending=True) == [7, 4, 4, 1]
    assert heap_sort([]) == []


def test_heap_sort_keeps_input():
    given = [2, 1]
    assert heap_sort(given) == [1, 2]
    assert given == [2, 1]


def test_smallest():
    assert smallest([4, 2, 9]) == [2]
    assert smallest([4, 2, 9], 2) == [2, 4]
    assert smallest([4], 0) == []
    with pytest.raises(ValueError):
        smallest([4], -1)


def test_merge_sorted():
    assert merge_sorted([1, 4], [2, 3, 5]) == [1, 2, 3, 4, 5]
    assert merge_sorted([7]) == [7]
    assert merge_sorted() == []
