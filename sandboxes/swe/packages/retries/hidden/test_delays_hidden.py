import pytest

from retries import exponential, fibonacci, linear, spread


def test_steady():
    assert linear(1) == [1]
    assert linear(2, 4) == [4, 5]
    assert linear(4, first=10, increment=-2) == [10, 8, 6, 4]
    assert linear(0, 3, 3) == []
    with pytest.raises(ValueError):
        linear(-1, 3, 3)


def test_growing():
    assert exponential(3) == [1, 2, 4]
    assert exponential(8)[5:] == [32, 60, 60]
    assert exponential(3, 2, 10, 50) == [2, 20, 50]
    assert exponential(2, factor=1) == [1, 1]
    assert exponential(1, base=0.25) == [0.25]
    assert exponential(0) == []


def test_bad_growth():
    with pytest.raises(ValueError):
        exponential(1, factor=0)
    with pytest.raises(ValueError):
        exponential(1, base=0)
    with pytest.raises(ValueError):
        exponential(1, factor=0.9)


def test_sums():
    assert fibonacci(0) == []
    assert fibonacci(12)[9:] == [55, 60, 60]
    assert fibonacci(7, longest=6) == [1, 1, 2, 3, 5, 6, 6]


def test_parts():
    assert spread([2, 4, 6]) == [2, 2, 6]
    assert spread([1, 10, 1, 20], 0.1) == [1, 9, 1, 18]
    assert spread([3, 3], part=0) == [3, 3]
    assert spread([3, 3, 3], part=1) == [3, 0, 3]
    with pytest.raises(ValueError):
        spread([], 1.01)
    with pytest.raises(ValueError):
        spread([], -0.01)
