import pytest

from keepsake import Cache, ManualClock


@pytest.fixture
def clock():
    return ManualClock()


def test_reading_protects_from_eviction(clock):
    cache = Cache(2, ttl=10, clock=clock)
    cache.put("a", 1)
    cache.put("b", 2)
    assert cache.get("a") == 1
    cache.put("c", 3)
    assert "a" in cache
    assert "b" not in cache
    assert cache.stats.evictions == 1


def test_expired_entries_go_before_live_ones(clock):
    cache = Cache(2, ttl=10, clock=clock)
    cache.put("a", 1)
    clock.advance(8)
    cache.put("b", 2)
    assert cache.get("a") == 1  # used last, but the first to expire
    clock.advance(4)
    cache.put("c", 3)
    assert "b" in cache
    assert "c" in cache
    assert cache.stats.evictions == 0
    assert cache.stats.expirations == 1


def test_overwriting_evicts_nobody(clock):
    cache = Cache(2, ttl=10, clock=clock)
    cache.put("a", 1)
    cache.put("b", 2)
    cache.put("b", 3)
    assert cache.get("a") == 1
    assert cache.get("b") == 3
    assert cache.stats.evictions == 0


def test_overwriting_moves_to_the_young_end(clock):
    cache = Cache(3, ttl=10, clock=clock)
    cache.put("a", "a")
    cache.put("b", "b")
    cache.put("a", "A")
    cache.put("c", "c")
    cache.put("d", "d")
    assert cache.get("a") == "A"
    assert "b" not in cache


def test_expired_entries_are_counted_once(clock):
    cache = Cache(3, ttl=10, clock=clock)
    cache.put("a", 1)
    cache.put("b", 2)
    clock.advance(10)
    assert cache.get("a") is None
    cache.put("c", 3)
    cache.put("d", 4)
    cache.put("e", 5)
    assert len(cache) == 3
    assert cache.stats.expirations == 2
    assert cache.stats.evictions == 0


def test_the_oldest_is_evicted(clock):
    cache = Cache(2, ttl=10, clock=clock)
    for key in "abc":
        cache.put(key, key)
    assert ["a" in cache, "b" in cache, "c" in cache] == [False, True, True]
    assert cache.stats.evictions == 1


def test_a_miss_gives_the_default(clock):
    cache = Cache(2, ttl=10, clock=clock)
    assert cache.get("nope", 5) == 5
    assert cache.stats.misses == 1


def test_an_entry_lives_up_to_its_age(clock):
    cache = Cache(2, ttl=10, clock=clock)
    cache.put("a", 1)
    clock.advance(9.5)
    assert cache.get("a") == 1
    clock.advance(0.5)
    assert cache.get("a") is None


def test_bad_settings_are_refused():
    for capacity, ttl in ((0, 1), (1, 0)):
        with pytest.raises(ValueError, match="capacity"):
            Cache(capacity, ttl)
