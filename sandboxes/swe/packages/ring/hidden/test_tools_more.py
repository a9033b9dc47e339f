import pytest
from ring import chunks, last_items, rotate


def test_tail():
    assert last_items([4, 5, 6], 1) == [6]
    assert last_items(range(10), 3) == [7, 8, 9]
    assert last_items([], 2) == []


def test_turns():
    assert rotate(["a", "b", "c"]) == ["c", "a", "b"]
    assert rotate(["a", "b", "c"], 0) == ["a", "b", "c"]
    assert rotate(["a", "b", "c"], 5) == ["b", "c", "a"]
    assert rotate(["a", "b", "c", "d"], -1) == ["b", "c", "d", "a"]
    assert rotate([], 4) == []


def test_groups():
    assert chunks("abcdefg", 3) == ["abc", "def", "g"]
    assert chunks("abcdefg", 3, False) == ["abc", "def"]
    assert chunks("ab", 5) == ["ab"]
    assert chunks("", 1) == []


def test_group_size():
    assert chunks([7, 8], 1) == [[7], [8]]
    for size in (0, -1):
        with pytest.raises(ValueError, match="positive"):
            chunks([1, 2], size)
