from flood import cells_of, fill, neighbours

WIDE = ["abba", "aaba"]


def test_beside():
    assert neighbours(WIDE, 0, 3) == [(1, 3), (0, 2)]
    assert neighbours(WIDE, 1, 0) == [(0, 0), (1, 1)]
    assert neighbours(WIDE, 0, 2) == [(1, 2), (0, 1), (0, 3)]
    assert neighbours(["k", "l"], 1, 0) == [(0, 0)]
    assert neighbours(["kl"], 0, 0) == [(0, 1)]


def test_tall():
    tall = ["ab", "cd", "ef"]
    assert neighbours(tall, 1, 1) == [(0, 1), (2, 1), (1, 0)]
    assert neighbours(tall, 2, 0) == [(1, 0), (2, 1)]


def test_fields():
    assert cells_of(WIDE, 1, 1) == [(1, 1), (1, 0), (0, 0)]
    assert cells_of(WIDE, 0, 3) == [(0, 3), (1, 3)]
    assert cells_of(["q"], 0, 0) == [(0, 0)]
    assert sorted(cells_of(WIDE, 1, 2)) == [(0, 1), (0, 2), (1, 2)]


def test_paint():
    assert fill(WIDE, 0, 2, "c") == ["acca", "aaca"]
    assert fill(WIDE, 1, 3, "z") == ["abbz", "aabz"]
    assert fill(["q"], 0, 0, "r") == ["r"]
