import pytest

from rowline import split_line, to_records


def test_plain():
    assert split_line("one") == ["one"]
    assert split_line(",") == ["", ""]
    assert split_line("a|b,c", comma="|") == ["a", "b,c"]
    assert split_line("  padded  ,x") == ["padded", "x"]


def test_quotes():
    assert split_line('"a,b,c"') == ["a,b,c"]
    assert split_line('x,y,"a,b",""') == ["x", "y", "a,b", ""]
    assert split_line('x,"""y"""') == ["x", '"y"']
    assert split_line('" keep ",z') == [" keep ", "z"]
    assert split_line('a""b,c') == ['a""b', "c"]
    assert split_line("/a,b/,c", ",", "/") == ["a,b", "c"]


def test_bad_quotes():
    with pytest.raises(ValueError):
        split_line('a,b"')
    with pytest.raises(ValueError):
        split_line('x,"a"b')
    with pytest.raises(ValueError):
        split_line('"a,"b')


def test_records():
    lines = ["k|v", "a|1", "", "b|2"]
    assert to_records(lines, comma="|") == [{"k": "a", "v": "1"}, {"k": "b", "v": "2"}]
    assert to_records(["k,v", '"x,y",z']) == [{"k": "x,y", "v": "z"}]


def test_bad_records():
    with pytest.raises(ValueError, match="line 2 has 1 fields"):
        to_records(["k,v", "a"])
    with pytest.raises(ValueError, match="line 4 has 2 fields"):
        to_records(["k", "a", "", "b,c"])
