import pytest
from expressions import is_number, tokenize, value_of


def test_numbers():
    numbers = [word for word in ("0", "3.25", "a", "7b", "1..2", "") if is_number(word)]
    assert numbers == ["0", "3.25"]
    assert is_number("1..2") is False
    assert is_number(".") is False


def test_values():
    assert value_of("40", {"x": 1}) == 40
    assert value_of("rate", {"rate": 3, "x": 1}) == 3
    with pytest.raises(ValueError, match="unknown"):
        value_of("rate", {})


def test_tokens():
    assert tokenize("(a+10)") == ["(", "a", "+", "10", ")"]
    assert tokenize("x2*y.z") == ["x2", "*", "y.z"]
    assert tokenize("7") == ["7"]
    assert tokenize(" - ") == ["-"]


def test_other_characters():
    for text in ("a % b", "1,5", "x = 2"):
        with pytest.raises(ValueError):
            tokenize(text)
