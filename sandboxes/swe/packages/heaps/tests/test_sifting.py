from heaps import heapify, is_heap, sift_down, sift_up


def test_sift_up():
    heap = [2, 5, 3, 9, 1]
    assert sift_up(heap, 4) == 0
    assert heap == [1, 2, 3, 9, 5]
    assert sift_up(heap, 3) == 3


def test_sift_up_stops():
    heap = [1, 4, 2, 6, 5, 0]
    assert sift_up(heap, 5) == 0
    assert heap == [0, 4, 1, 6, 5, 2]
    assert sift_up([3, 3], 1) == 1
    assert sift_up([1, 5, 2, 4], 3) == 1


def test_sift_down():
    heap = [9, 2, 3, 4, 5]
    assert sift_down(heap, 0) == 3
    assert heap == [2, 4, 3, 9, 5]


def test_sift_down_size():
    heap = [9, 5, 2, 1]
    assert sift_down(heap, 0, size=3) == 2
    assert heap == [2, 5, 9, 1]
    assert sift_down([4, 4, 4], 0) == 0
    assert sift_down([0, 7, 2, 9, 8, 1], 1) == 1


def test_heapify():
    assert heapify([5, 4, 3, 2, 1]) == [1, 2, 3, 5, 4]
    assert is_heap(heapify([9, 8, 7, 6, 5, 4, 3, 2, 1, 0]))
    assert heapify([2, 1]) == [1, 2]


def test_is_heap():
    assert is_heap([1, 2, 3, 2]) is True
    assert is_heap([5, 3, 6]) is False
    assert is_heap([1, 2, 9, 3, 4, 5]) is False
    assert is_heap([1, 2, 9, 3, 4, 9]) is True
    assert is_heap([1, 3, 2, 2]) is False
    assert is_heap([0, 0]) is True
