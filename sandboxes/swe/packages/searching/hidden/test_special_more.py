import pytest
from searching import root, turning_point


def test_turns():
    assert turning_point([6, 7, 8, 1, 2]) == 3
    assert turning_point([5, 1, 2, 3, 4]) == 1
    assert turning_point([3, 4, 5, 6, 7, 8, 2]) == 6
    assert turning_point([1, 2]) == 0


def test_turn_errors():
    assert turning_point([0]) == 0
    with pytest.raises(ValueError):
        turning_point([])


def test_roots():
    assert [root(number) for number in (0, 3, 4, 8, 9)] == [0, 1, 2, 2, 3]
    assert root(1) == 1
    assert root(144) == 12
    assert root(143) == 11


def test_root_refuses():
    assert root(2**20) == 1024
    for number in (-1, -9):
        with pytest.raises(ValueError):
            root(number)
