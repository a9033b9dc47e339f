from keepsake import Cache, ManualClock


def test_put_and_get():
    cache = Cache(2, ttl=10)
    cache.put("a", 1)
    assert cache.get("a") == 1
    assert cache.stats.hit_rate == 1.0


def test_expiry():
    clock = ManualClock()
    cache = Cache(2, ttl=10, clock=clock)
    cache.put("a", 1)
    clock.advance(10)
    assert "a" not in cache
    assert cache.get("a") is None
    assert len(cache) == 0


def test_eviction():
    cache = Cache(1, ttl=10)
    cache.put("a", 1)
    cache.put("b", 2)
    assert "a" not in cache
    assert cache.stats.evictions == 1
