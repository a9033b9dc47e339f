import pytest
from averages import cumulative, exponential, moving


def test_windows():
    assert moving([2, 4, 6, 8, 10], 3) == [4, 6, 8]
    assert moving([7], 1) == [7]
    assert moving([], 2) == []
    with pytest.raises(ValueError):
        moving([1], -1)


def test_window_zero():
    with pytest.raises(ValueError):
        moving([1, 2, 3], 0)


def test_smoothing():
    assert exponential([8, 0, 0]) == [8, 4, 2]
    assert exponential([0, 8], 0.75) == [0, 6]
    assert exponential([3, 9], 1) == [3, 9]
    assert exponential([]) == []


def test_smoothing_limits():
    for alpha in (0, -0.5, 1.25):
        with pytest.raises(ValueError):
            exponential([2], alpha)


def test_running_means():
    assert cumulative([6]) == [6]
    assert cumulative([1, 2, 3, 6]) == [1, 1.5, 2, 3]
