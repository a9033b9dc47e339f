import pytest
from searching import root, turning_point


def test_turning_point():
    assert turning_point([4, 5, 1, 2, 3]) == 2
    assert turning_point([1, 2, 3]) == 0
    assert turning_point([2, 3, 4, 1]) == 3
    assert turning_point([7]) == 0


def test_turning_point_empty():
    assert turning_point([2, 1]) == 1
    assert turning_point([9, 1, 2, 3, 4, 5, 6]) == 1
    with pytest.raises(ValueError):
        turning_point([])


def test_root():
    assert root(0) == 0
    assert root(1) == 1
    assert root(15) == 3
    assert root(16) == 4


def test_root_large():
    assert root(1000000) == 1000
    assert root(999999) == 999
    assert root(24) == 4
    with pytest.raises(ValueError):
        root(-1)
