from averages import changes, longest_rise, peaks


def test_changes():
    assert changes([1, 4, 2]) == [3, -2]
    assert changes([5]) == []


def test_peaks():
    assert peaks([1, 3, 2, 5, 4]) == [1, 3]
    assert peaks([1, 3, 2, 5, 4], minimum=3) == [3]
    assert peaks([2, 2, 1]) == []
    assert peaks([1, 2, 2]) == []


def test_peaks_ends():
    assert peaks([9, 1, 9]) == []
    assert peaks([0, 1, 0]) == [1]
    assert peaks([-2, 0, -2]) == []


def test_longest_rise():
    assert longest_rise([1, 2, 3, 1, 2]) == 3
    assert longest_rise([3, 2, 1]) == 1
    assert longest_rise([1, 4, 2]) == 2
    assert longest_rise([5, 5, 6]) == 2
    assert longest_rise([]) == 0
