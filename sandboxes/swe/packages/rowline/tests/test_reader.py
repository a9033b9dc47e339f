import pytest

from rowline import split_line, to_records


def test_split_line():
    assert split_line("a,b,c") == ["a", "b", "c"]
    assert split_line("a;b,c", ";") == ["a", "b,c"]
    assert split_line(" a ,, b") == ["a", "", "b"]
    assert split_line("") == [""]


def test_split_quoted():
    assert split_line('a,"b,c",d') == ["a", "b,c", "d"]
    assert split_line('"say ""hi""",x') == ['say "hi"', "x"]
    assert split_line('"",b') == ["", "b"]
    assert split_line("'a,b',c", mark="'") == ["a,b", "c"]


def test_split_refuses():
    for line in ('a,"b', '"a"b,c', '"'):
        with pytest.raises(ValueError):
            split_line(line)


def test_to_records():
    lines = ["name,age", "ann,7", "  ", '"bo, b",8']
    ann = {"name": "ann", "age": "7"}
    assert to_records(lines) == [ann, {"name": "bo, b", "age": "8"}]
    assert to_records(["x;y", "1;2"], ";") == [{"x": "1", "y": "2"}]
    assert to_records(["x"]) == []


def test_to_records_refuses():
    with pytest.raises(ValueError, match="line 3 has 3 fields"):
        to_records(["x,y", "1,2", "1,2,3"])
