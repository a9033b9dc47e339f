import pytest
from units import add, compare, parse_quantity


def test_parse_quantity():
    assert parse_quantity("3 km") == (3.0, "km")
    assert parse_quantity("2.5") == (2.5, "m")
    assert parse_quantity("7", default_unit="s") == (7.0, "s")


def test_parse_quantity_errors():
    for text in ("1 km m", "3 foo"):
        with pytest.raises(ValueError):
            parse_quantity(text)
    with pytest.raises(ValueError, match="needed"):
        parse_quantity(" ")


def test_add():
    assert add((1, "km"), (500, "m")) == (1.5, "km")
    assert add((500, "m"), (1, "km")) == (1500, "m")


def test_compare():
    assert compare((1, "km"), (1000, "m")) == 0
    assert compare((2, "h"), (100, "min")) == 1
    assert compare((1, "g"), (1, "kg")) == -1


def test_compare_tolerance():
    assert compare((10, "m"), (12, "m"), tolerance=2) == 0
    assert compare((10, "m"), (13, "m"), tolerance=2) == -1
    assert compare((3, "m"), (3.5, "m")) == -1
    assert compare((13, "m"), (10, "m"), 2) == 1
