from throttle import Limiter


def test_rate():
    limiter = Limiter(2)
    allowed = [limiter.allow("k", time) for time in (0, 0, 0, 1, 1)]
    assert allowed == [True, True, False, True, False]
    assert limiter.refused == {"k": 2}


def test_cost():
    limiter = Limiter(4, 2)
    assert limiter.allow("k", 3, 4) is True
    assert limiter.allow("k", 4, 3) is False
    assert limiter.allow("k", 4, cost=2) is True
    assert limiter.allow("m", 4, 5) is False
    assert limiter.refused == {"k": 1, "m": 1}


def test_first_use():
    limiter = Limiter(4, 2)
    bucket = limiter.bucket_of("k", 30)
    assert (bucket.capacity, bucket.rate, bucket.updated) == (4, 2, 30)
    assert limiter.buckets == {"k": bucket}
    assert limiter.bucket_of("k", 31) is bucket


def test_idle():
    limiter = Limiter(3)
    for time, key in enumerate("abc"):
        limiter.allow(key, time)
    assert limiter.forget_idle(4, 2) == ["a", "b"]
    assert list(limiter.buckets) == ["c"]
    assert limiter.forget_idle(4, 1) == ["c"]
    assert limiter.buckets == {}
