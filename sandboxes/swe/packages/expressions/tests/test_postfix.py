import pytest
from expressions import priority, to_postfix


def test_priority():
    assert priority("*") > priority("+")
    assert [priority(symbol) for symbol in "+/^"] == [1, 2, 3]
    assert priority("-") == priority("+")
    assert priority("x") == 0
    assert priority("x", default=-1) == -1


def test_order():
    assert to_postfix(list("a+b*c")) == list("abc*+")
    assert to_postfix(list("a*b+c")) == list("ab*c+")
    assert to_postfix(list("a-b+c-d")) == list("ab-c+d-")
    assert to_postfix(list("a^b^c")) == list("abc^^")


def test_parentheses():
    assert to_postfix(list("(a+b)*c")) == list("ab+c*")
    assert to_postfix(list("a/(b-c)")) == list("abc-/")
    assert to_postfix(list("((a))")) == ["a"]
    assert to_postfix(list("a*b^c/d")) == list("abc^*d/")


def test_bad_parentheses():
    with pytest.raises(ValueError, match="closed"):
        to_postfix(list("(a+b"))
    with pytest.raises(ValueError, match="opened"):
        to_postfix(list("a)+b"))
