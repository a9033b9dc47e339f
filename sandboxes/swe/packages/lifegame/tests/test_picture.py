from lifegame import bounds, draw, read


def test_read():
    assert read([".o", "oo"]) == {(0, 1), (1, 0), (1, 1)}
    assert read(["x.o"], "x") == {(0, 0)}
    assert read(["o"], top=2, left=5) == {(2, 5)}
    assert read([".o"], "o", 1, 1) == {(1, 2)}
    assert read([]) == set()


def test_bounds():
    assert bounds({(1, 5), (3, 4), (2, 9)}) == (1, 4, 3, 9)
    assert bounds({(-1, 0)}) == (-1, 0, -1, 0)
    assert bounds(set()) is None


def test_draw():
    assert draw({(0, 0), (0, 2), (1, 1)}) == ["o.o", ".o."]
    assert draw({(5, 5)}) == ["o"]
    assert draw({(2, 1), (2, 3)}, "x", "-") == ["x-x"]
    assert draw(set()) == []
