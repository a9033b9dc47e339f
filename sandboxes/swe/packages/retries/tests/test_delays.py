import pytest

from retries import exponential, fibonacci, linear, spread


def test_linear():
    assert linear(3) == [1, 2, 3]
    assert linear(3, 5, 10) == [5, 15, 25]
    assert linear(0) == []
    with pytest.raises(ValueError):
        linear(-1)


def test_exponential():
    assert exponential(4) == [1, 2, 4, 8]
    assert exponential(3, base=5, factor=3) == [5, 15, 45]
    assert exponential(7)[-1] == 60
    assert exponential(4, 1, 2, 3) == [1, 2, 3, 3]


def test_exponential_refuses():
    assert exponential(2, base=0.5, factor=1) == [0.5, 0.5]
    for base, factor in [(1, 0.5), (0, 2), (-1, 2)]:
        with pytest.raises(ValueError):
            exponential(3, base, factor)


def test_fibonacci():
    assert fibonacci(6) == [1, 1, 2, 3, 5, 8]
    assert fibonacci(11)[-2:] == [55, 60]
    assert fibonacci(5, 4) == [1, 1, 2, 3, 4]


def test_spread():
    assert spread([10, 10, 20, 20]) == [10, 5, 20, 10]
    assert spread([8, 8], 0.25) == [8, 6]
    assert spread([4, 4], 1) == [4, 0]
    assert spread([4, 4], 0) == [4, 4]
    for part in (-0.5, 1.5):
        with pytest.raises(ValueError):
            spread([1], part)
