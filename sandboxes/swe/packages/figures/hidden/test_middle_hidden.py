import pytest

from figures import mean, median, mode, weighted_mean


def test_means():
    assert mean([10]) == 10
    assert mean([2, 3, 5, 8]) == 4.5
    with pytest.raises(ValueError):
        mean([])


def test_medians():
    assert median([9, 2]) == 5.5
    assert median([3, 2, 1, 5, 4]) == 3
    assert median([1, 10, 3, 4, 50, 6]) == 5
    with pytest.raises(ValueError):
        median([])


def test_modes():
    assert mode([7]) == 7
    assert mode([1, 2, 3, 2, 3]) == 2
    assert mode([8, 9, 9]) == 9
    assert mode([]) is None
    assert mode([], default=-1) == -1


def test_weights():
    assert weighted_mean([5], [3]) == 5
    assert weighted_mean([1, 2, 3], [0, 1, 1]) == 2.5
    assert weighted_mean([10, 20], [3, 1]) == 12.5
    with pytest.raises(ValueError):
        weighted_mean([1], [1, 2])
