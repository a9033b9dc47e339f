from flood import border_length, field_sizes, largest_field

RINGS = ["ooooo", "o...o", "o.o.o", "o...o", "ooooo"]


def test_sizes():
    assert field_sizes(RINGS, "o") == [16, 1]
    assert field_sizes(RINGS, ".") == [8]
    assert field_sizes([], "o") == []
    assert field_sizes(["x.x", "..x"], "x") == [1, 2]


def test_largest():
    assert largest_field(RINGS, ".o") == ("o", 16)
    assert largest_field(RINGS, ".") == (".", 8)
    assert largest_field(["ab"], "ba") == ("b", 1)
    assert largest_field([], "ab") == (None, 0)


def test_borders():
    assert border_length(RINGS, 2, 2) == 4
    assert border_length(RINGS, 0, 0) == 32
    assert border_length(RINGS, 1, 1) == 16
    assert border_length(["ll", "l."], 0, 1) == 8
    assert border_length(["mmm"], 0, 1) == 8
