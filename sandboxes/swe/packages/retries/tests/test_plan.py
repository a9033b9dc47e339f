import pytest

from retries import fit_budget, play, retry_after, start_times


def test_start_times():
    assert start_times([1, 2, 4]) == [0, 1, 3, 7]
    assert start_times([5], 10) == [10, 15]
    assert start_times([]) == [0]


def test_fit_budget():
    assert fit_budget([1, 2, 4, 8], 7) == [1, 2, 4]
    assert fit_budget([1, 2, 4, 1], 5) == [1, 2]
    assert fit_budget([3], 2) == []


def test_retry_after():
    assert retry_after(1, [5, 7], 503) == 5
    assert retry_after(2, [5, 7], 429) == 7
    assert retry_after(3, [5, 7], 503) is None
    assert retry_after(1, [5, 7], 404) is None
    assert retry_after(1, [5], 404, transient=(404,)) == 5


def test_retry_after_refuses():
    with pytest.raises(ValueError):
        retry_after(0, [5], 503)


def test_play():
    assert play([False, False, True], [1, 2, 4]) == (True, 3, 3)
    assert play([True], [1]) == (True, 1, 0)
    assert play([False, False, False, True], [1, 2]) == (False, 3, 3)
    assert play([False, False], [3, 1]) == (False, 2, 4)
    assert play([], [1]) == (False, 0, 0)
