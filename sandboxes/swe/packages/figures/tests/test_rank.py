import pytest

from figures import interquartile_range, percentile, rank_of


def test_percentile():
    assert percentile([40, 10, 30, 20], 0) == 10
    assert percentile([40, 10, 30, 20], 100) == 40
    assert percentile([10, 20, 30], 50) == 20
    assert percentile([40, 10, 30, 20], 50) == 25
    assert percentile([10, 20], 75) == 17.5


def test_percentile_refuses():
    for numbers, percent in [([], 50), ([1], -1), ([1], 101)]:
        with pytest.raises(ValueError):
            percentile(numbers, percent)


def test_interquartile_range():
    assert interquartile_range([1, 2, 3, 4, 5]) == 2
    assert interquartile_range([0, 100]) == 50


def test_rank_of():
    assert rank_of([10, 30, 20], 30) == 1
    assert rank_of([10, 30, 20], 20) == 2
    assert rank_of([10, 30, 20], 5) == 4
    assert rank_of([], 5) == 1
