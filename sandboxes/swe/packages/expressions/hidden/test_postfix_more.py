import pytest
from expressions import priority, to_postfix


def test_priorities():
    assert [priority(symbol) for symbol in "+*^"] == [1, 2, 3]
    assert priority("/") == priority("*")
    assert priority("-") < priority("/")
    assert priority("(") == 0
    assert priority("(", 9) == 9


def test_orders():
    assert to_postfix(list("a/b*c")) == list("ab/c*")
    assert to_postfix(list("a-b*c+d")) == list("abc*-d+")
    assert to_postfix(list("a*b^c^d")) == list("abcd^^*")
    assert to_postfix([]) == []


def test_groups():
    assert to_postfix(list("a*(b+c*d)-e")) == list("abcd*+*e-")
    assert to_postfix(list("(a-b)-(c-d)")) == list("ab-cd--")
    assert to_postfix(list("(a^b)^c")) == list("ab^c^")


def test_wrong_groups():
    for text in (")", "(a))"):
        with pytest.raises(ValueError, match="opened"):
            to_postfix(list(text))
    for text in ("(", "a*(b", "(a"):
        with pytest.raises(ValueError, match="closed"):
            to_postfix(list(text))
