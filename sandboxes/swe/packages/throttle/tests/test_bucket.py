import pytest

from throttle import Bucket


def test_refuses_bad_numbers():
    for capacity, rate in [(0, 1), (1, 0), (-1, 2), (2, -1)]:
        with pytest.raises(ValueError):
            Bucket(capacity, rate)


def test_refill():
    bucket = Bucket(10, 2, start=5)
    bucket.tokens = 1
    assert bucket.refill(7) == 5
    assert (bucket.tokens, bucket.updated) == (5, 7)
    bucket.refill(100)
    assert bucket.tokens == 10
    with pytest.raises(ValueError):
        bucket.refill(99)


def test_take():
    bucket = Bucket(3, 1)
    assert bucket.take(0) is True
    assert bucket.take(0, 2) is True
    assert bucket.take(0) is False
    assert bucket.take(1) is True
    assert bucket.tokens == 0


def test_wait_time():
    bucket = Bucket(4, 2)
    assert bucket.wait_time(0) == 0
    bucket.take(0, 4)
    assert bucket.wait_time(0, 3) == 1.5
    assert bucket.wait_time(0) == 0.5
    assert bucket.wait_time(1, 4) == 1
    with pytest.raises(ValueError):
        bucket.wait_time(1, 5)
