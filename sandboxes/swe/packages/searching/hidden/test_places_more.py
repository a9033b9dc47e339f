from searching import count_equal, find, left_place, right_place


def test_left_places():
    items = [10, 20, 20, 20, 30, 40, 50]
    assert left_place(items, 20) == 1
    assert left_place(items, 45) == 6
    assert left_place(items, 5) == 0
    assert left_place(items, 60) == 7


def test_right_places():
    items = [10, 20, 20, 20, 30, 40, 50]
    assert right_place(items, 20) == 4
    assert right_place(items, 50) == 7
    assert right_place(items, 9) == 0
    assert right_place([], 9) == 0


def test_finds():
    letters = ["a", "c", "c", "f", "k"]
    assert [find(letters, letter) for letter in "ackz"] == [0, 1, 4, -1]
    assert find(letters, "b", 99) == 99
    assert find([], 1) == -1


def test_counts():
    assert count_equal([5, 5, 5, 5], 5) == 4
    assert count_equal([1, 3], 2) == 0
    assert count_equal([1, 3], 3) == 1
