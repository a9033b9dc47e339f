import pytest
from wordcount import count_words, frequency, top_words

TEXT = "red blue red green blue red"


def test_count_words():
    assert count_words(TEXT) == {"red": 3, "blue": 2, "green": 1}
    assert count_words(TEXT, ignore=["red"]) == {"blue": 2, "green": 1}
    assert count_words("") == {}


def test_top_words():
    assert top_words(TEXT) == ["red", "blue", "green"]
    assert top_words(TEXT, limit=1) == ["red"]
    assert top_words(TEXT, at_least=2) == ["red", "blue"]
    assert top_words("d c b a") == ["a", "b", "c"]


def test_top_words_limit():
    assert top_words(TEXT, 0) == []
    with pytest.raises(ValueError):
        top_words(TEXT, -1)


def test_frequency():
    assert frequency(TEXT, "red") == 0.5
    assert frequency("a b c d", "B") == 0.25
    assert frequency("a", "b") == 0
    assert frequency("", "a") == 0
