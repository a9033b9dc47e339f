import pytest
from units import add, compare, parse_quantity


def test_read():
    assert parse_quantity("12 kg") == (12.0, "kg")
    assert parse_quantity(" 0.5  h ") == (0.5, "h")
    assert parse_quantity("4") == (4.0, "m")
    assert parse_quantity("4", "g") == (4.0, "g")


def test_not_read():
    with pytest.raises(ValueError, match="needed"):
        parse_quantity("  ")
    for text in ("", "km 3", "5 m m", "5 meter"):
        with pytest.raises(ValueError):
            parse_quantity(text)


def test_added():
    assert add((30, "min"), (1, "h")) == (90, "min")
    assert add((2, "t"), (250, "kg")) == (2.25, "t")
    with pytest.raises(ValueError):
        add((1, "m"), (1, "s"))


def test_compared():
    assert compare((1, "d"), (25, "h")) == -1
    assert compare((1, "d"), (23, "h")) == 1
    assert compare((5, "cm"), (50, "mm")) == 0


def test_nearly_equal():
    assert compare((5, "kg"), (4, "kg"), 1) == 0
    assert compare((5, "kg"), (3, "kg"), 1) == 1
    assert compare((5, "kg"), (9, "kg"), 3) == -1
