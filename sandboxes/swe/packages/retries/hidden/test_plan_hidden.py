import pytest

from retries import fit_budget, play, retry_after, start_times


def test_times():
    assert start_times([3, 3, 3], 1) == [1, 4, 7, 10]
    assert start_times([0.5]) == [0, 0.5]
    assert start_times([], start=9) == [9]


def test_budget():
    assert fit_budget([2, 2, 2], 6) == [2, 2, 2]
    assert fit_budget([2, 2, 2], 5) == [2, 2]
    assert fit_budget([9, 1], 8) == []
    assert fit_budget([], 1) == []


def test_next_delay():
    delays = [1, 10, 100]
    assert [retry_after(n, delays, 429) for n in (1, 2, 3, 4)] == [1, 10, 100, None]
    assert retry_after(2, delays, 503) == 10
    assert retry_after(2, delays, 500) is None
    assert retry_after(2, delays, 500, (500, 502)) == 10
    assert retry_after(1, [], 503) is None
    with pytest.raises(ValueError):
        retry_after(0, delays, 500)


def test_games():
    assert play([False, True, False], [7]) == (True, 2, 7)
    assert play([False, False, True], [7]) == (False, 2, 7)
    assert play([False], [7, 8]) == (False, 1, 7)
    assert play([False, False, False, False, True], [1, 2, 3, 4]) == (True, 5, 10)
    assert play([False, True], []) == (False, 1, 0)
