import pytest
from ratios import mixed, parse


def test_mixed():
    assert mixed((7, 4)) == "1 3/4"
    assert mixed((2, 4)) == "1/2"
    assert mixed((6, 3)) == "2"
    assert mixed((0, 5)) == "0"


def test_mixed_negative():
    assert mixed((-7, 2)) == "-3 1/2"
    assert mixed((-1, 3)) == "-1/3"
    assert mixed((-4, 2)) == "-2"


def test_parse():
    assert parse("3/4") == (3, 4)
    assert parse("1 1/2") == (3, 2)
    assert parse("-2 1/4") == (-9, 4)
    assert parse("5") == (5, 1)
    assert parse("-1 1/2") == (-3, 2)


def test_parse_other():
    assert parse("  ") is None
    assert parse("", empty=(0, 1)) == (0, 1)
    assert parse("0 2/6") == (1, 3)
    with pytest.raises(ValueError):
        parse("1 2 3/4")
