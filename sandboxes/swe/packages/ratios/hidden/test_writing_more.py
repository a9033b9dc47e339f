import pytest
from ratios import mixed, parse


def test_written():
    assert mixed((11, 3)) == "3 2/3"
    assert mixed((10, -4)) == "-2 1/2"
    assert mixed((3, 9)) == "1/3"
    assert mixed((17, 5)) == "3 2/5"


def test_written_small():
    assert mixed((-2, 6)) == "-1/3"
    assert mixed((0, -3)) == "0"
    assert mixed((1, 1)) == "1"
    assert mixed((-5, 5)) == "-1"


def test_read():
    assert parse("6/8") == (3, 4)
    assert parse("2 2/4") == (5, 2)
    assert parse("-1 3/8") == (-11, 8)
    assert parse("-7") == (-7, 1)
    assert parse("0 1/2") == (1, 2)


def test_empty():
    assert parse(" ") is None
    assert parse("", 5) == 5


def test_not_read():
    for text in ("1 2 3", "a/b", "1/2/3"):
        with pytest.raises(ValueError):
            parse(text)
