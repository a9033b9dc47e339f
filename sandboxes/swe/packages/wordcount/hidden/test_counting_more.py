import pytest
from wordcount import count_words, frequency, top_words


def test_counts():
    assert count_words("Ha ha HA") == {"ha": 3}
    assert count_words("one two one", ("two", "x")) == {"one": 2}
    assert count_words("!") == {}


def test_ranking():
    text = "b b a a c d d d"
    assert top_words(text) == ["d", "a", "b"]
    assert top_words(text, 2) == ["d", "a"]
    assert top_words(text, 9, at_least=3) == ["d"]
    assert top_words("m", 5) == ["m"]


def test_ranking_limits():
    assert top_words("a b", limit=0) == []
    for limit in (-1, -4):
        with pytest.raises(ValueError):
            top_words("a b", limit)


def test_shares():
    assert frequency("go stop GO stop go go stop stop", "Go") == 0.5
    assert frequency("up up", "up") == 1
    assert frequency("up", "down") == 0
    assert frequency("", "up") == 0
