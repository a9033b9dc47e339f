from lifegame import bounds, draw, read


def test_reading():
    assert read(["..", "o."]) == {(1, 0)}
    assert read(["o*", "*o"], letter="*") == {(0, 1), (1, 0)}
    assert read([".o", "o."], "o", 10, 20) == {(10, 21), (11, 20)}
    assert read(["..."]) == set()


def test_corners():
    assert bounds({(0, 0), (4, 7)}) == (0, 0, 4, 7)
    assert bounds({(3, -2), (-5, 6), (0, 0)}) == (-5, -2, 3, 6)
    assert bounds([]) is None


def test_drawing():
    assert draw({(7, 7), (8, 9), (9, 7)}) == ["o..", "..o", "o.."]
    assert draw({(-1, -1), (0, 0)}, letter="#") == ["#.", ".#"]
    assert draw({(1, 1), (3, 1)}, blank=" ") == ["o", " ", "o"]
    assert draw([]) == []


def test_round_trip():
    lines = ["o.oo", ".o..", "..oo"]
    assert draw(read(lines)) == lines
    assert draw(read(lines, top=-3, left=8)) == lines
