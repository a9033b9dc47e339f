import pytest

from histogram import bin_counts, bin_index, edges


def test_widths():
    assert edges(0, 1, 4) == [0, 0.25, 0.5, 0.75, 1]
    assert edges(10, 30, 2) == [10, 20, 30]
    assert edges(0, 20)[1:3] == [2, 4]
    assert edges(5, 6, count=1) == [5, 6]


def test_bad_edges():
    with pytest.raises(ValueError, match="bin"):
        edges(0, 1, 0)
    with pytest.raises(ValueError, match="below"):
        edges(3, 3)
    with pytest.raises(ValueError):
        edges(4, 3)


def test_places():
    marks = [1, 2, 4, 8]
    places = [bin_index(marks, v) for v in (0.9, 1, 1.9, 2, 3.9, 4, 8, 8.1)]
    assert places == [None, 0, 0, 1, 1, 2, 2, None]
    assert bin_index([0, 1], 1) == 0


def test_counts():
    marks = [1, 2, 4, 8]
    assert bin_counts(marks, [8, 8, 1, 3, 9, 0]) == [1, 1, 2]
    assert bin_counts(marks, [8, 8, 1, 3, 9, 0], True) == [2, 1, 3]
    assert bin_counts(marks, []) == [0, 0, 0]
    assert bin_counts([0, 9], [4, 5]) == [2]
    with pytest.raises(ValueError):
        bin_counts([], [1])
    with pytest.raises(ValueError):
        bin_counts([3], [3])
