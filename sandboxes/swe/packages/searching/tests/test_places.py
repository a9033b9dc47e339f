from searching import count_equal, find, left_place, right_place


def test_left_place():
    assert left_place([1, 3, 3, 5], 3) == 1
    assert left_place([1, 3, 5], 4) == 2
    assert left_place([1, 3], 9) == 2
    assert left_place([], 1) == 0


def test_right_place():
    assert right_place([1, 3, 3, 5], 3) == 3
    assert right_place([1, 3, 5], 0) == 0
    assert right_place([2, 4], 4) == 2
    assert right_place([2, 4, 6, 8], 5) == 2


def test_find():
    assert find([2, 4, 6, 8, 9], 8) == 3
    assert find([2, 4, 4, 4], 4) == 1
    assert find([2, 4], 3) == -1
    assert find([2, 4], 5, missing=None) is None


def test_count_equal():
    assert count_equal([1, 2, 2, 2, 3], 2) == 3
    assert count_equal([1, 2], 5) == 0
