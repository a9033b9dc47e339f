import pytest
from ciphers import fence, rail_rows


def test_rail_rows():
    assert rail_rows("abcde", 3) == [0, 1, 2, 1, 0]
    assert rail_rows("abcd", 2) == [0, 1, 0, 1]
    assert rail_rows("abc", 1) == [0, 0, 0]


def test_rail_rows_bad():
    with pytest.raises(ValueError):
        rail_rows("abc", 0)


def test_fence():
    assert fence("abcdef", 2) == "acebdf"
    assert fence("wearefound") == "wenerfudao"
    assert fence("abc", 1) == "abc"
