from lru import Memory


def test_call():
    asked = []
    memory = Memory(lambda x: asked.append(x) or x * 10)
    assert memory.call(2) == 20
    assert memory.call(2) == 20
    assert memory.call(3) == 30
    assert asked == [2, 3]


def test_counts():
    memory = Memory(abs)
    for number in (1, 2, 3, 1, 4, 2):
        memory.call(number)
    assert (memory.hits, memory.misses) == (1, 5)


def test_none_is_remembered():
    memory = Memory(lambda x: None)
    assert memory.call(1) is None
    assert memory.call(1) is None
    assert memory.hits == 1


def test_hit_rate():
    memory = Memory(len, limit=1)
    assert memory.hit_rate() == 0
    for text in ("a", "a", "b"):
        memory.call(text)
    assert memory.hit_rate() == 0.33
    assert memory.hit_rate(1) == 0.3
