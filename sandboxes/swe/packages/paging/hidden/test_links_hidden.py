from paging import label, neighbours, window


def test_windows():
    assert window(4, 20) == [2, 3, 4, 5, 6]
    assert window(2, 20) == [1, 2, 3, 4]
    assert window(6, 7, 3) == [3, 4, 5, 6, 7]
    assert window(2, 3, 0) == [2]


def test_before_and_after():
    assert neighbours(1, 1) == (None, None)
    assert neighbours(2, 2) == (1, None)
    assert neighbours(1, 2) == (None, 2)
    assert neighbours(7, 9) == (6, 8)


def test_labels():
    assert label(1, 1) == "[1]"
    assert label(4, 6) == ".. 2 3 [4] 5 6"
    assert label(3, 6) == "1 2 [3] 4 5 ..."
    assert label(5, 9, width=0) == ".. [5] ..."
