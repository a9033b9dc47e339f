from intervals import covered, find_gaps, first_free


def test_find_gaps():
    assert find_gaps([(2, 4), (6, 8)], 0, 10) == [(0, 2), (4, 6), (8, 10)]
    assert find_gaps([(0, 10)], 0, 10) == []
    assert find_gaps([], 3, 5) == [(3, 5)]
    assert find_gaps([(0, 4), (4, 6)], 1, 4) == []


def test_find_gaps_outside():
    assert find_gaps([(0, 3), (9, 15)], 2, 6) == [(3, 6)]
    assert find_gaps([(5, 6), (8, 9)], 5, 8) == [(6, 8)]
    assert find_gaps([(1, 5), (7, 9)], 0, 4) == [(0, 1)]


def test_covered():
    assert covered([(1, 4), (2, 6)]) == 5
    assert covered([(0, 2), (10, 13)]) == 5
    assert covered([]) == 0


def test_first_free():
    assert first_free([(0, 9), (10, 12)], 1) == 9
    assert first_free([(0, 9), (10, 12)], 2) == 12
    assert first_free([(1, 23)], 2) is None
    assert first_free([(1, 23)], 1) == 0
    assert first_free([(0, 20)], 4) == 20
    assert first_free([(2, 5)], 3, start=1, stop=8) == 5
