import pytest
from expressions import apply, calculate, evaluate


def test_apply():
    assert apply("+", 8, 2) == 10
    assert apply("-", 8, 2) == 6
    assert apply("*", 8, 2) == 16
    assert apply("/", 8, 2) == 4
    assert apply("^", 8, 2) == 64


def test_division_by_zero():
    assert apply("/", 5, 1) == 5
    with pytest.raises(ValueError, match="zero"):
        apply("/", 1, 0)


def test_evaluate():
    assert evaluate(["7", "x", "-"], {"x": 3}) == 4
    assert evaluate(["5"], {}) == 5
    with pytest.raises(ValueError, match="operand"):
        evaluate(["1", "+"], {})
    with pytest.raises(ValueError, match="operator"):
        evaluate(["1", "2"], {})


def test_calculate():
    assert calculate("2 + 3 * 4") == 14
    assert calculate("(2 + 3) * 4 - 1") == 19
    assert calculate("a / b - c", a=9, b=3, c=1) == 2
    assert calculate("2 ^ 3 ^ 2") == 512
