import pytest

from rowline import join_fields, needs_quotes, quote, select_columns


def test_needed():
    assert needs_quotes("plain") is False
    assert needs_quotes("") is False
    assert needs_quotes("end ") is True
    assert needs_quotes('"') is True
    assert needs_quotes(",") is True
    assert needs_quotes("a|b", "|") is True
    assert needs_quotes("a'b", mark="'") is True


def test_marks():
    assert quote("") == '""'
    assert quote('""') == '""""""'
    assert quote("a/b", mark="/") == "/a//b/"


def test_lines():
    assert join_fields([None, 0, 1.5]) == ",0,1.5"
    assert join_fields(["a|b", " c", "d"], comma="|") == '"a|b"|" c"|d'
    assert join_fields(['say "x"']) == '"say ""x"""'
    assert join_fields([None]) == ""


def test_columns():
    lines = ["a|b|c", "1,0|2|3", "4|5|6"]
    assert select_columns(lines, ["c", "a", "b"], "|") == ["c|a|b", "3|1,0|2", "6|4|5"]
    assert select_columns(["a,b"], ["b", "b"]) == ["b,b"]
    assert select_columns(["a,b", '"x,y",z'], ["a"]) == ["a", '"x,y"']
    with pytest.raises(ValueError):
        select_columns(["a,b"], ["a", "c"])
