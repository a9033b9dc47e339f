from lru import UsageOrder


def make_order(keys):
    order = UsageOrder()
    for key in keys:
        order.touch(key)
    return order


def test_oldest():
    assert make_order("abc").oldest() == "a"
    assert make_order("abca").oldest() == "b"
    assert make_order("x").oldest() == "x"
    assert UsageOrder().oldest() is None


def test_newest():
    assert make_order("abc").newest() == ["c"]
    assert make_order("abcb").newest(2) == ["b", "c"]
    assert UsageOrder().newest() == []


def test_forget():
    order = make_order("abc")
    assert order.forget("a") is True
    assert order.forget("a") is False
    assert order.oldest() == "b"
