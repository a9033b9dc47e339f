from lru import UsageOrder


def test_touching():
    order = UsageOrder()
    assert order.oldest() is None
    for key in (3, 1, 2, 3, 1):
        order.touch(key)
    assert order.oldest() == 2
    assert order.newest() == [1]
    assert order.newest(3) == [1, 3, 2]


def test_forgetting():
    order = UsageOrder()
    order.touch("k")
    assert order.forget("j") is False
    assert order.oldest() == "k"
    assert order.forget("k") is True
    assert order.oldest() is None


def test_forgotten_key_comes_back():
    order = UsageOrder()
    for key in "pqr":
        order.touch(key)
    order.forget("p")
    order.touch("p")
    assert order.oldest() == "q"
    assert order.newest(2) == ["p", "r"]
