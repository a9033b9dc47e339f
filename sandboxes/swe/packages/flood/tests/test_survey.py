from flood import border_length, field_sizes, largest_field

MAP = ["aab", "bab", "bbc", "aac"]


def test_field_sizes():
    assert field_sizes(MAP, "a") == [3, 2]
    assert field_sizes(MAP, "b") == [2, 3]
    assert field_sizes(MAP, "c") == [2]
    assert field_sizes(MAP, "z") == []


def test_largest_field():
    assert largest_field(MAP, "ca") == ("a", 3)
    assert largest_field(MAP, "ba") == ("b", 3)
    assert largest_field(MAP, "z") == (None, 0)
    assert largest_field(["x"], "x") == ("x", 1)


def test_border_length():
    assert border_length(["x"], 0, 0) == 4
    assert border_length(MAP, 0, 0) == 8
    assert border_length(["xx", "xx"], 1, 0) == 8
    assert border_length(["xxx", "xox", "xxx"], 0, 1) == 16
