import pytest
from bounds import clamp, in_range, wrap


def test_clamp_inside():
    assert clamp(2, 0, 3) == 2
    assert clamp(0, 0, 3) == 0


def test_clamp_outside():
    assert clamp(-5, -1, 3) == -1
    assert clamp(9, 0, 3) == 3


def test_clamp_bad_range():
    assert clamp(7, 4, 4) == 4
    with pytest.raises(ValueError):
        clamp(1, 3, 2)


def test_in_range_ends():
    assert in_range(1, 1, 4)
    assert not in_range(4, 1, 4)
    assert in_range(4, 1, 4, inclusive=True)


def test_in_range_outside():
    assert in_range(3, 1, 4)
    assert in_range(0, 1, 4) is False
    assert not in_range(0, 1, 4, inclusive=True)
    assert not in_range(5, 1, 4, inclusive=True)


def test_wrap():
    assert wrap(370, 0, 360) == 10
    assert wrap(-190, -180, 180) == 170
    assert wrap(5, 5, 6) == 5
    assert wrap(14, 3, 8) == 4
    with pytest.raises(ValueError):
        wrap(1, 3, 3)
