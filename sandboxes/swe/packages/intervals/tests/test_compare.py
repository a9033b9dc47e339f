from intervals import contains, intersect, subtract


def test_contains():
    assert contains((2, 5), 2) is True
    assert contains((2, 5), 5) is False
    assert contains((2, 5), 1) is False


def test_intersect():
    assert intersect((1, 5), (3, 9)) == (3, 5)
    assert intersect((3, 9), (1, 5)) == (3, 5)
    assert intersect((1, 3), (3, 6)) is None
    assert intersect((0, 10), (4, 5)) == (4, 5)


def test_subtract():
    assert subtract((0, 10), (3, 5)) == [(0, 3), (5, 10)]
    assert subtract((0, 4), (6, 9)) == [(0, 4)]
    assert subtract((2, 6), (0, 9)) == []


def test_subtract_ends():
    assert subtract((2, 6), (2, 3)) == [(3, 6)]
    assert subtract((2, 6), (4, 8)) == [(2, 4)]
