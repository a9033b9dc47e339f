import pytest

from figures import span, standard_deviation, variance


def test_variance():
    assert variance([1, 3]) == 1
    assert variance([2, 4, 9]) == pytest.approx(26 / 3)
    assert variance([5]) == 0


def test_sample_variance():
    assert variance([1, 3], sample=True) == 2
    assert variance([2, 4, 9], True) == 13
    with pytest.raises(ValueError):
        variance([5], sample=True)
    with pytest.raises(ValueError):
        variance([])


def test_standard_deviation():
    assert standard_deviation([1, 5]) == 2
    assert standard_deviation([0, 6, 3], True) == 3


def test_span():
    assert span([4, 1, 9]) == 8
    assert span([]) == 0
    assert span([], 5) == 5
    assert span([3]) == 0
