from linediff import common_length, common_part, similarity


def test_common_length():
    assert common_length("abcde", "xbxdx") == 2
    assert common_length("abc", "abc") == 3
    assert common_length("abc", "cba") == 1
    assert common_length("", "abc") == 0


def test_common_length_of_lists():
    assert common_length([1, 2, 3, 4], [2, 4, 3]) == 2
    assert common_length([5, 1, 2], [1, 2, 9, 9]) == 2


def test_common_part():
    assert common_part("abcde", "xbxdx") == ["b", "d"]
    assert common_part([1, 2, 3], [3, 1, 2]) == [1, 2]
    assert common_part("abc", "xyz") == []
    assert common_part("aab", "aab") == ["a", "a", "b"]


def test_common_part_is_longest():
    assert common_part("abcbdab", "xbxcxa") == ["b", "c", "a"]
    assert common_part("bca", "abca") == ["b", "c", "a"]


def test_similarity():
    assert similarity("ab", "ab") == 1
    assert similarity("abcd", "ab") == 2 / 3
    assert similarity("ab", "") == 0
    assert similarity([], []) == 1
