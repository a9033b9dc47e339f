import pytest
from lru import Cache


def test_put_and_get():
    cache = Cache(2)
    cache.put("a", 1)
    assert cache.get("a") == 1
    assert cache.get("b") is None
    assert cache.get("b", default=0) == 0


def test_drops_oldest():
    cache = Cache(2)
    cache.put("a", 1)
    cache.put("b", 2)
    assert cache.put("c", 3) == "a"
    assert cache.values == {"b": 2, "c": 3}


def test_get_counts_as_use():
    cache = Cache(2)
    cache.put("a", 1)
    cache.put("b", 2)
    cache.get("a")
    assert cache.put("c", 3) == "b"


def test_put_again():
    cache = Cache(2)
    cache.put("a", 1)
    cache.put("b", 2)
    assert cache.put("a", 9) is None
    assert cache.get("a") == 9
    assert cache.put("c", 3) == "b"


def test_remove():
    cache = Cache(1)
    cache.put("a", 1)
    assert cache.remove("a") is True
    assert cache.values == {}
    assert cache.remove("a") is False
    with pytest.raises(ValueError):
        Cache(0)
