import pytest
from averages import mean, median, weighted


def test_mean():
    assert mean([1, 2, 6]) == 3
    assert mean([5]) == 5
    assert mean([]) is None
    assert mean([], default=0) == 0


def test_median():
    assert median([5, 1, 3]) == 3
    assert median([4, 1, 3, 10]) == 3.5
    assert median([8]) == 8
    assert median([9, 1, 2, 3, 4]) == 3
    with pytest.raises(ValueError):
        median([])


def test_weighted():
    assert weighted([1, 4], [2, 1]) == 2
    assert weighted([10, 20, 30], [1, 0, 3]) == 25


def test_weighted_errors():
    with pytest.raises(ValueError):
        weighted([1, 2], [1])
    with pytest.raises(ValueError):
        weighted([1, 2], [1, -1])
