from throttle import Limiter


def test_keys_are_separate():
    limiter = Limiter(1)
    assert limiter.allow("ann", 0) is True
    assert limiter.allow("ann", 0) is False
    assert limiter.allow("bob", 0) is True
    assert limiter.allow("ann", 1) is True


def test_refused():
    limiter = Limiter(2, 0.5)
    assert limiter.allow("ann", 10, 2)
    assert not limiter.allow("ann", 11)
    assert not limiter.allow("ann", 11)
    assert limiter.refused == {"ann": 2}
    assert limiter.allow("ann", 12)


def test_bucket_of():
    limiter = Limiter(5, 3)
    bucket = limiter.bucket_of("ann", 7)
    assert (bucket.capacity, bucket.rate, bucket.updated) == (5, 3, 7)
    assert limiter.bucket_of("ann", 9) is bucket


def test_forget_idle():
    limiter = Limiter(1)
    limiter.allow("ann", 0)
    limiter.allow("bob", 5)
    assert limiter.forget_idle(10, 5) == ["ann"]
    assert list(limiter.buckets) == ["bob"]
    assert limiter.forget_idle(10, 5) == []
