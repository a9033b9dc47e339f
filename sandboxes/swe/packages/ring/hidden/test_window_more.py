from ring import Window


def test_sliding():
    window = Window(3)
    assert [window.add(n) for n in (1, 2, 4, 8, 16)] == [None, None, None, 1, 2]
    assert window.total == 28
    assert window.buffer.items() == [4, 8, 16]


def test_means():
    window = Window(3)
    assert window.mean(-1) == -1
    assert window.mean() == 0
    window.add(6)
    assert window.mean() == 6
    window.add(9)
    assert window.mean() == 7.5


def test_window_of_one():
    window = Window(1)
    assert window.add(3) is None
    assert window.add(5) == 3
    assert window.mean() == 5
    assert window.spread() == 0


def test_spreads():
    window = Window(2)
    assert window.spread() == 0
    for number in (-4, 6):
        window.add(number)
    assert window.spread() == 10
