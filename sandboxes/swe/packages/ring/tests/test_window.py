from ring import Window


def test_add():
    window = Window(2)
    assert window.add(5) is None
    assert window.add(7) is None
    assert window.add(9) == 5
    assert window.total == 16
    assert window.buffer.items() == [7, 9]


def test_mean():
    window = Window(2)
    assert window.mean() == 0
    assert window.mean(default=None) is None
    window.add(4)
    assert window.mean() == 4
    for number in (8, 10):
        window.add(number)
    assert window.mean() == 9


def test_spread():
    window = Window(3)
    assert window.spread() == 0
    for number in (50, 3, 8, 4):
        window.add(number)
    assert window.spread() == 5
