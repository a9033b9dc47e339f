from wordcount import sentences, words


def test_words():
    assert words("The cat, the DOG.") == ["the", "cat", "the", "dog"]
    assert words("don't 'quote'") == ["don't", "quote"]
    assert words("a1b") == ["a", "b"]
    assert words("") == []


def test_words_minimum():
    assert words("a big old ox", minimum=3) == ["big", "old"]
    assert words("a big", 2) == ["big"]
    assert words("x' 'y") == ["x", "y"]
    assert words("a ' b", minimum=0) == ["a", "b"]


def test_sentences():
    assert sentences("One. Two!  Three?") == ["One", "Two", "Three"]
    assert sentences("no end") == ["no end"]
    assert sentences("First. second") == ["First", "second"]
    assert sentences("Wait... what") == ["Wait", "what"]
    assert sentences("a;b.c", marks=";") == ["a", "b.c"]
