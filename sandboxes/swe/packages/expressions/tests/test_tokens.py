import pytest
from expressions import is_number, tokenize, value_of


def test_is_number():
    assert is_number("12") is True
    assert is_number("0.5") is True
    assert is_number("1.2.3") is False
    assert is_number("x1") is False
    assert is_number(".") is False


def test_value_of():
    assert value_of("2.5", {}) == 2.5
    assert value_of("x", {"x": 7}) == 7
    with pytest.raises(ValueError, match="unknown"):
        value_of("y", {"x": 7})


def test_tokenize():
    assert tokenize("1+23") == ["1", "+", "23"]
    assert tokenize(" 2 * (x1 - .5)") == ["2", "*", "(", "x1", "-", ".5", ")"]
    assert tokenize("a/b^2") == ["a", "/", "b", "^", "2"]
    assert tokenize("") == []


def test_tokenize_error():
    with pytest.raises(ValueError):
        tokenize("1 $ 2")
