import pytest
from averages import mean, median, weighted


def test_means():
    assert mean([4, 8]) == 6
    assert mean([0, 0, 3]) == 1
    assert mean([], 7) == 7
    assert mean([]) is None


def test_medians():
    assert median([9, 2]) == 5.5
    assert median([7, 7, 1, 9, 3]) == 7
    assert median([6, 1, 2, 3]) == 2.5
    with pytest.raises(ValueError):
        median([])


def test_weights():
    assert weighted([3], [5]) == 3
    assert weighted([2, 5], [1, 2]) == 4
    with pytest.raises(ValueError):
        weighted([3], [1, 2])


def test_no_weight():
    assert weighted([4, 8], [1, 0]) == 4
    with pytest.raises(ValueError):
        weighted([5, 6], [0, 0])
