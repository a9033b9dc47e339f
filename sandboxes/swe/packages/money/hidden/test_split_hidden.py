import pytest

from money import split_by, split_evenly


def test_even():
    assert split_evenly(100, 7) == [15, 15, 14, 14, 14, 14, 14]
    assert split_evenly(2, 4) == [1, 1, 0, 0]
    assert split_evenly(0, 2) == [0, 0]
    assert split_evenly(1, 1) == [1]
    for people in (0, -2):
        with pytest.raises(ValueError):
            split_evenly(5, people)


def test_weighted():
    assert split_by(1000, [2, 3, 5]) == [200, 300, 500]
    assert split_by(100, [1, 1, 4]) == [16, 16, 68]
    assert split_by(5, [1, 1]) == [3, 2]
    assert split_by(1, [1]) == [1]
    assert split_by(3, [1, 0]) == [3, 0]


def test_bad_weights():
    with pytest.raises(ValueError):
        split_by(5, [0])
    with pytest.raises(ValueError):
        split_by(5, [3, -1, 1])
    with pytest.raises(ValueError):
        split_by(5, [-1, -1])
