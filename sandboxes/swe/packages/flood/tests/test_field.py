from flood import cells_of, fill, neighbours

LAKE = ["wwl", "lwl", "lll"]


def test_neighbours():
    assert neighbours(LAKE, 1, 1) == [(0, 1), (2, 1), (1, 0), (1, 2)]
    assert neighbours(LAKE, 0, 0) == [(1, 0), (0, 1)]
    assert neighbours(LAKE, 2, 2) == [(1, 2), (2, 1)]
    assert neighbours(["a"], 0, 0) == []


def test_neighbours_of_a_row():
    assert neighbours(["abc"], 0, 1) == [(0, 0), (0, 2)]
    assert neighbours(["a", "b", "c"], 1, 0) == [(0, 0), (2, 0)]


def test_cells_of():
    assert cells_of(LAKE, 0, 0) == [(0, 0), (0, 1), (1, 1)]
    assert len(cells_of(LAKE, 2, 2)) == 6
    assert cells_of(["xxx"], 0, 2) == [(0, 2), (0, 1), (0, 0)]
    assert len(cells_of(["x", "x", "x"], 2, 0)) == 3
    assert cells_of(["ab", "ba"], 0, 1) == [(0, 1)]


def test_fill():
    assert fill(LAKE, 1, 1, "i") == ["iil", "lil", "lll"]
    assert fill(["ab", "ba"], 0, 1, "x") == ["ax", "ba"]
    assert LAKE == ["wwl", "lwl", "lll"]
