import pytest

from histogram import bin_counts, bin_index, edges


def test_edges():
    assert edges(0, 10, 5) == [0, 2, 4, 6, 8, 10]
    assert edges(1, 2, 1) == [1, 2]
    assert len(edges(0, 1)) == 11
    assert edges(-3, 3, 4) == [-3, -1.5, 0, 1.5, 3]


def test_edges_refuses():
    for low, high, count in [(0, 1, 0), (1, 1, 2), (2, 1, 2)]:
        with pytest.raises(ValueError):
            edges(low, high, count)


def test_bin_index():
    marks = [0, 10, 20, 40]
    assert bin_index(marks, 0) == 0
    assert bin_index(marks, 10) == 1
    assert bin_index(marks, 39) == 2
    assert bin_index(marks, 40) == 2


def test_bin_index_outside():
    assert bin_index([0, 10], -1) is None
    assert bin_index([0, 10], 11) is None


def test_bin_counts():
    assert bin_counts([0, 5, 10], [1, 4, 5, 10, 12, -1]) == [2, 2]
    assert bin_counts([0, 5, 10], [12, 11, -1], clip=True) == [1, 2]
    assert bin_counts([0, 1], []) == [0]
    with pytest.raises(ValueError):
        bin_counts([0], [])
