import pytest
from ring import chunks, last_items, rotate


def test_last_items():
    assert last_items("abcdef", 2) == ["e", "f"]
    assert last_items([1], 4) == [1]


def test_rotate():
    assert rotate([1, 2, 3, 4]) == [4, 1, 2, 3]
    assert rotate([1, 2, 3, 4], 3) == [2, 3, 4, 1]
    assert rotate([1, 2, 3], -1) == [2, 3, 1]
    assert rotate([1, 2, 3], 7) == [3, 1, 2]
    assert rotate([]) == []


def test_chunks():
    assert chunks([1, 2, 3, 4, 5], 2) == [[1, 2], [3, 4], [5]]
    assert chunks([1, 2, 3], 2, keep_rest=False) == [[1, 2]]
    assert chunks([1, 2], 1) == [[1], [2]]
    with pytest.raises(ValueError, match="positive"):
        chunks([1], 0)
