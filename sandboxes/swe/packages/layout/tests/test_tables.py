from layout import column_widths, render


def test_column_widths():
    assert column_widths([["a", "bcd"], ["efg", "h"]]) == [3, 3]
    assert column_widths([["a"], ["b", 1234]]) == [1, 4]
    assert column_widths([[""]], minimum=2) == [2]
    assert column_widths([["", ""]]) == [1, 1]


def test_render():
    text = render([["name", "n"], ["ant", 5], ["be", 12]])
    lines = text.split("\n")
    assert lines[0] == "name | n"
    assert lines[1] == "---------"
    assert lines[2:] == ["ant  |  5", "be   | 12"]


def test_render_plain():
    assert render([["a", "b"]], " ", header=False) == "a b"
    assert render([[7, "x"], [10, "y"]], "|", False) == " 7|x\n10|y"
