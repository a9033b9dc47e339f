import pytest

from money import split_by, split_evenly


def test_split_evenly():
    assert split_evenly(10, 3) == [4, 3, 3]
    assert split_evenly(11, 3) == [4, 4, 3]
    assert split_evenly(9, 3) == [3, 3, 3]
    assert split_evenly(50, 4) == [13, 13, 12, 12]
    assert split_evenly(5, 1) == [5]
    with pytest.raises(ValueError):
        split_evenly(10, 0)


def test_split_by():
    assert split_by(100, [1, 3]) == [25, 75]
    assert split_by(100, [1, 1, 1]) == [34, 33, 33]
    assert split_by(10, [1, 5, 1]) == [1, 8, 1]
    assert split_by(7, [0, 1]) == [0, 7]


def test_split_by_refuses():
    for weights in ([0, 0], [2, -1]):
        with pytest.raises(ValueError):
            split_by(10, weights)
