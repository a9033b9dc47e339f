import pytest

from throttle import Bucket


def test_new_bucket():
    bucket = Bucket(5, 0.5)
    assert (bucket.tokens, bucket.updated) == (5, 0)
    for capacity, rate in [(0, 3), (3, 0)]:
        with pytest.raises(ValueError):
            Bucket(capacity, rate)


def test_fill_up():
    bucket = Bucket(6, 3, 10)
    bucket.take(10, 6)
    assert bucket.refill(11) == 3
    assert bucket.refill(11) == 3
    assert bucket.refill(20) == 6
    assert (bucket.tokens, bucket.updated) == (6, 20)


def test_time_goes_on():
    bucket = Bucket(2, 1, start=4)
    with pytest.raises(ValueError):
        bucket.take(3)
    with pytest.raises(ValueError):
        bucket.wait_time(3)


def test_take_costs():
    bucket = Bucket(5, 1)
    assert bucket.take(0, 6) is False
    assert bucket.tokens == 5
    assert bucket.take(0, 5) is True
    assert bucket.take(2, 3) is False
    assert bucket.take(2) is True
    assert bucket.tokens == 1


def test_waiting():
    bucket = Bucket(8, 4, 1)
    bucket.take(1, 8)
    assert bucket.wait_time(1, 8) == 2
    assert bucket.wait_time(2, 4) == 0
    assert bucket.wait_time(2, 5) == 0.25
    assert bucket.wait_time(2) == 0
    bucket.take(2, 4)
    assert bucket.wait_time(2) == 0.25
    with pytest.raises(ValueError):
        bucket.wait_time(2, 9)
