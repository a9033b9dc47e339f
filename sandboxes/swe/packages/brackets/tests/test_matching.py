import pytest
from brackets import first_error, is_balanced, partner


def test_first_error():
    assert first_error("a(b)c") == -1
    assert first_error("a(b]c") == 3
    assert first_error("x)") == 1
    assert first_error("()[(") == 2


def test_first_error_outermost():
    assert first_error("({") == 0
    assert first_error("") == -1


def test_is_balanced():
    assert is_balanced("{[()]}()") is True
    assert is_balanced("([)]") is False
    assert is_balanced("(") is False


def test_partner():
    assert partner("(a)(b)", 0) == 2
    assert partner("f(g(x))", 1) == 6
    assert partner("[()]", 0) == 3


def test_partner_errors():
    with pytest.raises(ValueError):
        partner("a()", 0)
    with pytest.raises(ValueError):
        partner("((x)", 0)
