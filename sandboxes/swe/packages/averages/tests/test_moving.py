import pytest
from averages import cumulative, exponential, moving


def test_moving():
    assert moving([1, 3, 5, 7], 2) == [2, 4, 6]
    assert moving([3, 6, 9], 3) == [6]
    assert moving([4, 2], 1) == [4, 2]
    assert moving([1, 2], 3) == []


def test_moving_bad_window():
    with pytest.raises(ValueError):
        moving([1, 2], 0)


def test_exponential():
    assert exponential([4, 8, 0]) == [4, 6, 3]
    assert exponential([10, 20], alpha=0.25) == [10, 12.5]
    assert exponential([1, 5], alpha=1) == [1, 5]


def test_exponential_bad_alpha():
    with pytest.raises(ValueError):
        exponential([1], alpha=0)
    with pytest.raises(ValueError):
        exponential([1], alpha=1.5)


def test_cumulative():
    assert cumulative([2, 4, 9]) == [2, 3, 5]
    assert cumulative([]) == []
