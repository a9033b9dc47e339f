import pytest
from searching import ceiling, closest, floor


def test_floor():
    assert floor([1, 4, 9], 5) == 4
    assert floor([1, 4, 9], 9) == 9
    assert floor([3, 4], 2) is None


def test_ceiling():
    assert ceiling([1, 4, 9], 5) == 9
    assert ceiling([1, 4, 9], 1) == 1
    assert ceiling([3, 4], 5) is None


def test_closest():
    assert closest([10, 20, 30], 24) == 20
    assert closest([10, 20, 30], 27) == 30
    assert closest([10, 20], 15) == 10


def test_closest_ends():
    assert closest([5, 8], 1) == 5
    assert closest([5, 8], 99) == 8
    with pytest.raises(ValueError):
        closest([], 1)
