from linediff import common_length, common_part, similarity


def test_lengths():
    assert common_length("stone", "longest") == 3
    assert common_length("aaaa", "aa") == 2
    assert common_length("xyz", "") == 0
    assert common_length("bd", "abcd") == 2
    assert common_length("abcd", "bd") == 2


def test_parts():
    assert common_part("stone", "longest") == ["o", "n", "e"]
    assert common_part("bd", "abcd") == ["b", "d"]
    assert common_part(["x", "y", "z"], ["z", "y", "x", "z"]) == ["x", "z"]
    assert common_part("", "") == []
    assert common_part("abab", "baba") == ["a", "b", "a"]


def test_alike():
    assert similarity("", "") == 1
    assert similarity([1, 2, 3], [2, 3, 4]) == 2 / 3
    assert similarity("a", "b") == 0
    assert similarity("abc", "c") == 0.5
