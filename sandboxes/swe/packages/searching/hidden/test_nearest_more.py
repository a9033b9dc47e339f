import pytest
from searching import ceiling, closest, floor


def test_floors():
    assert floor([2, 4, 6], 6) == 6
    assert floor([2, 4, 6], 2) == 2
    assert floor([2, 4, 6], 1) is None
    assert floor([], 1) is None


def test_ceilings():
    assert ceiling([2, 4, 6], 3) == 4
    assert ceiling([2, 4, 6], 6) == 6
    assert ceiling([2, 4, 6], 7) is None


def test_nearest():
    assert closest([0, 10], 4) == 0
    assert closest([0, 10], 6) == 10
    assert closest([20, 40], 30) == 20
    assert closest([20, 40], 29) == 20
    assert closest([3, 7], 7) == 7


def test_nearest_at_ends():
    assert closest([0, 10], -3) == 0
    assert closest([0, 10], 13) == 10
    with pytest.raises(ValueError):
        closest([], 0)
