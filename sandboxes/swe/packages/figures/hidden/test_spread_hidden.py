import pytest

from figures import span, standard_deviation, variance


def test_variances():
    assert variance([4, 4, 4]) == 0
    assert variance([0, 2, 4, 6]) == 5
    assert variance([0, 1]) == 0.25
    assert variance([7]) == 0
    assert variance([0, 0, 3], sample=True) == 3
    assert variance([10, 14], sample=True) == 8


def test_too_few():
    with pytest.raises(ValueError):
        variance([])
    with pytest.raises(ValueError):
        variance([1], True)
    with pytest.raises(ValueError):
        standard_deviation([])


def test_deviations():
    assert standard_deviation([0, 10]) == 5
    assert standard_deviation([1, 1, 4], sample=True) == pytest.approx(3**0.5)


def test_spans():
    assert span([5, 5]) == 0
    assert span([-3, 2]) == 5
    assert span([10, 2, 7, 4]) == 8
    assert span([]) == 0
    assert span([], default=-1) == -1
