from intervals import covered, find_gaps, first_free


def test_gap_lists():
    assert find_gaps([(1, 2)], 0, 3) == [(0, 1), (2, 3)]
    assert find_gaps([(0, 1)], 0, 3) == [(1, 3)]
    assert find_gaps([(0, 9)], 2, 5) == []
    assert find_gaps([(7, 9)], 2, 5) == [(2, 5)]
    assert find_gaps([(1, 2), (3, 8)], 0, 9) == [(0, 1), (2, 3), (8, 9)]


def test_gaps_cut():
    assert find_gaps([(4, 6), (6, 7)], 4, 9) == [(7, 9)]
    assert find_gaps([(1, 3), (5, 9)], 0, 4) == [(0, 1), (3, 4)]
    assert find_gaps([(1, 4), (6, 9)], 0, 4) == [(0, 1)]


def test_covered_lengths():
    assert covered([(0, 3), (3, 5)]) == 5
    assert covered([(2, 9), (3, 4), (20, 21)]) == 8
    assert covered([]) == 0


def test_free_slots():
    assert first_free([], 5) == 0
    assert first_free([(0, 20)], 4) == 20
    assert first_free([(0, 20)], 5) is None
    assert first_free([(9, 10)], 2, 8, 12) == 10
