import pytest
from expressions import apply, calculate, evaluate


def test_operators():
    results = [apply(symbol, 9, 3) for symbol in "+-*/^"]
    assert results == [12, 6, 27, 3, 729]
    assert apply("*", 7, 0) == 0
    assert apply("/", 0, 4) == 0


def test_no_division():
    assert apply("/", 3, 1) == 3
    with pytest.raises(ValueError, match="zero"):
        calculate("4 / (2 - 2)")


def test_postfix_values():
    assert evaluate(["a", "b", "/"], {"a": 1, "b": 4}) == 0.25
    assert evaluate(["2", "3", "4", "*", "-"], {}) == -10


def test_bad_postfix():
    for tokens in ([], ["1", "2"], ["1", "2", "3", "+"]):
        with pytest.raises(ValueError, match="operator"):
            evaluate(tokens, {})
    for tokens in (["*"], ["4", "-"]):
        with pytest.raises(ValueError, match="operand"):
            evaluate(tokens, {})


def test_expressions():
    assert calculate("10 - 4 - 3") == 3
    assert calculate("1.5 * (x + 1)", x=3) == 6
    assert calculate("2 * 3 ^ 2 / 6") == 3
    with pytest.raises(ValueError, match="unknown"):
        calculate("x + y", x=1)
