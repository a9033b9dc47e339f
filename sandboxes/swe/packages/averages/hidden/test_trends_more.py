from averages import changes, longest_rise, peaks


def test_differences():
    assert changes([10, 7, 7, 9]) == [-3, 0, 2]
    assert changes([]) == []


def test_peak_places():
    assert peaks([0, 9, 0, 9, 0]) == [1, 3]
    assert peaks([0, 4, 0, 9, 0], 4) == [3]
    assert peaks([3, 3, 2]) == []
    assert peaks([1, 4, 4]) == []


def test_no_peaks():
    assert peaks([5, 1, 2]) == []
    assert peaks([3, 2, 4, 9]) == []
    assert peaks([6, 7, 8, 1]) == [2]
    assert peaks([]) == []
    assert peaks([-3, 0, -1]) == []
    assert peaks([0, 1, -5]) == [1]


def test_rises():
    assert longest_rise([7]) == 1
    assert longest_rise([3, 2, 1]) == 1
    assert longest_rise([1, 1, 1]) == 1
    assert longest_rise([1, 5, 9, 2]) == 3
    assert longest_rise([4, 1, 2, 5, 9]) == 4
    assert longest_rise([]) == 0
