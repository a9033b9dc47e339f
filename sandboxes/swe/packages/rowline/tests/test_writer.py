import pytest

from rowline import join_fields, needs_quotes, quote, select_columns


def test_needs_quotes():
    assert needs_quotes("a,b") is True
    assert needs_quotes('a"b') is True
    assert needs_quotes(" a") is True
    assert needs_quotes("a b") is False
    assert needs_quotes("a,b", ";", "'") is False


def test_quote():
    assert quote("a") == '"a"'
    assert quote('a"b') == '"a""b"'
    assert quote("it's", "'") == "'it''s'"


def test_join_fields():
    assert join_fields(["a", None, 3]) == "a,,3"
    assert join_fields(["a,b", "c"]) == '"a,b",c'
    assert join_fields(["a,b", "c;d"], ";") == 'a,b;"c;d"'
    assert join_fields([]) == ""


def test_select_columns():
    lines = ["x,y,z", "1,2,3", '4,"5,6",7']
    assert select_columns(lines, ["z", "x"]) == ["z,x", "3,1", "7,4"]
    assert select_columns(lines, ["y"]) == ["y", "2", '"5,6"']
    assert select_columns(["p;q", "1;2"], ["q"], ";") == ["q", "2"]
    with pytest.raises(ValueError):
        select_columns(lines, ["w"])
