import pytest

from figures import mean, median, mode, weighted_mean


def test_mean():
    assert mean([1, 2, 6]) == 3
    assert mean([1, 2]) == 1.5
    with pytest.raises(ValueError):
        mean([])


def test_median():
    assert median([5, 1, 3]) == 3
    assert median([4, 1, 2, 9]) == 3
    assert median([7]) == 7
    assert median([1, 2]) == 1.5
    with pytest.raises(ValueError):
        median([])


def test_mode():
    assert mode([3, 1, 1, 2]) == 1
    assert mode([5, 6, 5, 6]) == 5
    assert mode([]) is None
    assert mode([], 0) == 0


def test_weighted_mean():
    assert weighted_mean([1, 3], [1, 3]) == 2.5
    assert weighted_mean([4, 8], [2, 2]) == 6
    with pytest.raises(ValueError):
        weighted_mean([1, 2], [1])
