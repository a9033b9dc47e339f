import pytest
from bounds import clamp, in_range, wrap


def test_clamp_values():
    assert clamp(12, 10, 20) == 12
    assert clamp(8, 10, 20) == 10
    assert clamp(21, 10, 20) == 20
    assert clamp(4, 4, 4) == 4


def test_clamp_reversed():
    with pytest.raises(ValueError):
        clamp(5, 9, 1)


def test_in_range_values():
    assert in_range(0, 0, 2) is True
    assert in_range(5, 6, 9) is False
    assert in_range(2, 0, 2) is False
    assert in_range(2, 0, 2, True) is True
    assert in_range(1, 0, 2) is True


def test_in_range_below():
    assert in_range(-1, 0, 2) is False
    assert in_range(-1, 0, 2, True) is False
    assert in_range(3, 0, 2, True) is False


def test_wrap_hours():
    assert wrap(25, 0, 24) == 1
    assert wrap(13, 1, 13) == 1
    assert wrap(0, 1, 13) == 12
    assert wrap(20, 4, 9) == 5
    with pytest.raises(ValueError):
        wrap(0, 5, 1)


def test_wrap_small_range():
    assert wrap(8, 2, 3) == 2
    with pytest.raises(ValueError):
        wrap(8, 2, 2)
