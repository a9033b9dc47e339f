from layout import column_widths, render


def test_widths():
    assert column_widths([]) == []
    assert column_widths([["ab", "c", "d"], ["e", "fgh"]]) == [2, 3, 1]
    assert column_widths([[1000, 2]], 3) == [4, 3]
    assert column_widths([["", "a"]]) == [1, 1]


def test_rendered():
    rows = [["id", "word"], [1, "yes"], [20, "no"]]
    assert render(rows) == "id | word\n---------\n 1 | yes\n20 | no"


def test_without_header():
    assert render([["x", "yy"], ["zzz", 4]], ";", False) == "x  ;yy\nzzz; 4"
    assert render([["x", "yy"]], header=False) == "x | yy"


def test_three_columns():
    lines = render([["a", "b", "c"], ["d", "e", "f"]], "--").split("\n")
    assert lines == ["a--b--c", "-------", "d--e--f"]
