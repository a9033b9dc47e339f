from lru import Memory


def test_results():
    memory = Memory(str.upper)
    assert [memory.call(text) for text in ("a", "b", "a")] == ["A", "B", "A"]
    assert memory.hits == 1
    assert memory.misses == 2


def test_default_space():
    calls = []
    memory = Memory(lambda x: calls.append(x) or -x)
    for number in (1, 2, 3, 1, 2, 3, 4, 1):
        assert memory.call(number) == -number
    assert calls == [1, 2, 3, 4, 1]
    assert memory.hits == 3


def test_small_space():
    memory = Memory(lambda x: None, limit=1)
    for number in (5, 5, 6, 5):
        assert memory.call(number) is None
    assert (memory.hits, memory.misses) == (1, 3)


def test_rates():
    memory = Memory(abs)
    assert memory.hit_rate() == 0
    for _ in range(6):
        memory.call(1)
    assert memory.hit_rate() == 0.83
    assert memory.hit_rate(1) == 0.8
