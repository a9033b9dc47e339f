import pytest
from ciphers import fence, rail_rows


def test_rows_zigzag():
    assert rail_rows("abcdefgh", 4) == [0, 1, 2, 3, 2, 1, 0, 1]
    assert rail_rows("xyz", 2) == [0, 1, 0]
    assert rail_rows("", 3) == []
    assert rail_rows("ab", 1) == [0, 0]


def test_rows_refused():
    with pytest.raises(ValueError):
        rail_rows("a", -1)
    with pytest.raises(ValueError):
        rail_rows("", 0)


def test_fence_rows():
    assert fence("abcdefgh", 4) == "agbfhced"
    assert fence("hello") == "hoell"
    assert fence("xy", 1) == "xy"
