import pytest
from lru import Cache


def test_one_place():
    cache = Cache(1)
    assert cache.put("x", 1) is None
    assert cache.put("x", 2) is None
    assert cache.put("y", 3) == "x"
    assert cache.get("x") is None
    assert cache.get("y") == 3


def test_use_protects():
    cache = Cache(3)
    for number, key in enumerate("abc"):
        cache.put(key, number)
    assert cache.get("a") == 0
    assert cache.put("d", 3) == "b"
    assert cache.put("e", 4) == "c"
    assert sorted(cache.values) == ["a", "d", "e"]


def test_new_value_protects():
    cache = Cache(2)
    cache.put("a", 0)
    cache.put("b", 1)
    cache.put("a", 5)
    assert cache.put("z", 6) == "b"
    assert cache.values == {"a": 5, "z": 6}


def test_missing_keys():
    cache = Cache(2)
    assert cache.get("q", 7) == 7
    assert cache.get("q") is None
    assert cache.remove("q") is False


def test_removed_key_leaves_room():
    cache = Cache(2)
    cache.put("a", 0)
    cache.put("b", 1)
    assert cache.remove("a") is True
    assert cache.put("c", 2) is None
    assert cache.order.oldest() == "b"
    for limit in (0, -1):
        with pytest.raises(ValueError):
            Cache(limit)
