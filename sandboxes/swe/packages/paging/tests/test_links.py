from paging import label, neighbours, window


def test_window_in_the_middle():
    assert window(5, 9) == [3, 4, 5, 6, 7]
    assert window(5, 9, 1) == [4, 5, 6]


def test_window_at_the_ends():
    assert window(1, 9) == [1, 2, 3]
    assert window(9, 9) == [7, 8, 9]
    assert window(1, 1) == [1]


def test_neighbours():
    assert neighbours(3, 5) == (2, 4)
    assert neighbours(1, 5) == (None, 2)
    assert neighbours(5, 5) == (4, None)
    assert neighbours(2, 3) == (1, 3)


def test_label():
    assert label(1, 3) == "[1] 2 3"
    assert label(5, 9) == ".. 3 4 [5] 6 7 ..."
    assert label(2, 4, 1) == "1 [2] 3 ..."
    assert label(3, 4, 1) == ".. 2 [3] 4"
