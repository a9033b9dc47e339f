from intervals import contains, intersect, subtract


def test_points():
    assert contains((0, 1), 0) is True
    assert contains((0, 1), 1) is False
    assert contains((4, 9), 8) is True
    assert contains((4, 9), 3) is False


def test_common_parts():
    assert intersect((2, 8), (1, 3)) == (2, 3)
    assert intersect((5, 6), (0, 5)) is None
    assert intersect((0, 1), (8, 9)) is None
    assert intersect((2, 3), (0, 7)) == (2, 3)


def test_pieces():
    assert subtract((1, 9), (1, 9)) == []
    assert subtract((1, 9), (0, 4)) == [(4, 9)]
    assert subtract((1, 9), (7, 12)) == [(1, 7)]
    assert subtract((1, 9), (2, 8)) == [(1, 2), (8, 9)]


def test_nothing_in_common():
    assert subtract((1, 2), (2, 3)) == [(1, 2)]
    assert subtract((5, 6), (1, 2)) == [(5, 6)]
