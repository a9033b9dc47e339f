from wordcount import common_words, similarity


def test_common_words():
    assert common_words("a b b c", "b b b d") == {"b": 2}
    assert common_words("x y", "y x x") == {"x": 1, "y": 1}
    assert common_words("a a a", "a") == {"a": 1}
    assert common_words("a", "b") == {}


def test_similarity():
    assert similarity("a b c d", "a b") == 0.5
    assert similarity("a b c", "c") == 0.33
    assert similarity("a b c", "c", digits=1) == 0.3
    assert similarity("a", "b c") == 0


def test_similarity_empty():
    assert similarity("", "") == 1
    assert similarity("", "a") == 0
    assert similarity("a", "") == 0
    assert similarity("b", "a b c d") == 0.25
