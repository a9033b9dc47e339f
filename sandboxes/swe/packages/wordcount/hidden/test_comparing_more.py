from wordcount import common_words, similarity


def test_shared():
    assert common_words("sun sun sun moon", "Sun sun") == {"sun": 2}
    assert common_words("sun", "sun sun star") == {"sun": 1}
    assert common_words("", "sun") == {}


def test_similar():
    assert similarity("one two", "two one") == 1
    assert similarity("one two three", "two one four") == 0.67
    assert similarity("one two three", "two one four", 1) == 0.7
    assert similarity("x y", "x a b c d e f g") == 0.12


def test_not_similar():
    assert similarity("x", "y z") == 0
    assert similarity("x", "") == 0
    assert similarity("", "") == 1
