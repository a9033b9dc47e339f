from heaps import heapify, is_heap, sift_down, sift_up


def test_up():
    heap = [10, 20, 30, 40, 50, 60, 5]
    assert sift_up(heap, 6) == 0
    assert heap == [5, 20, 10, 40, 50, 60, 30]
    assert sift_up(heap, 0) == 0


def test_up_part():
    heap = [1, 6, 2, 7, 3]
    assert sift_up(heap, 4) == 1
    assert heap == [1, 3, 2, 7, 6]
    assert sift_up([2, 2, 2], 2) == 2


def test_down():
    heap = [8, 3, 1, 6, 5, 4, 2]
    assert sift_down(heap, 0) == 6
    assert heap == [1, 3, 2, 6, 5, 4, 8]
    assert sift_down(heap, 5) == 5


def test_down_part():
    heap = [7, 6, 5]
    assert sift_down(heap, 0, 2) == 1
    assert heap == [6, 7, 5]
    assert sift_down([1, 1], 0) == 0
    assert sift_down([0, 5, 3, 9, 8], 1) == 1


def test_heap_order():
    assert heapify([3, 2, 1]) == [1, 2, 3]
    assert is_heap(heapify([5, 9, 1, 8, 2, 7, 3, 6, 4]))
    assert heapify([]) == []


def test_heap_check():
    assert is_heap([]) is True
    assert is_heap([2, 1, 3]) is False
    assert is_heap([0, 1, 8, 2, 3, 7]) is False
    assert is_heap([5, 3, 6]) is False
    assert is_heap([0, 5, 1, 5, 6, 2, 3, 4]) is False
    assert is_heap([1, 5, 2, 6, 4]) is False
    assert is_heap([1, 2, 5, 3, 4, 5]) is True
    assert is_heap([0, 9, 1, 9, 9, 8, 2, 5]) is False
    assert is_heap([0, 2, 7, 3, 2, 8, 9]) is True
