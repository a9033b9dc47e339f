import pytest

from figures import interquartile_range, percentile, rank_of


def test_percentiles():
    assert percentile([7], 30) == 7
    assert percentile([0, 10, 20, 30, 40], 25) == 10
    assert percentile([5, 1, 3], 75) == 4
    assert percentile([0, 8], 25) == 2
    assert percentile([2, 1], 100) == 2
    assert percentile([2, 1], 0) == 1


def test_percentile_errors():
    with pytest.raises(ValueError):
        percentile([], 10)
    with pytest.raises(ValueError):
        percentile([1, 2], 100.5)
    with pytest.raises(ValueError):
        percentile([1, 2], -0.5)


def test_quarters():
    assert interquartile_range([0, 4, 8]) == 4
    assert interquartile_range([10, 0, 30, 20, 100]) == 20
    assert interquartile_range([3]) == 0


def test_ranks():
    assert rank_of([5, 5, 1], 5) == 1
    assert rank_of([5, 5, 1], 1) == 3
    assert rank_of([9, 8, 7], 8.5) == 2
