import pytest

from prefixes import add_word, build, count_words, has_word


def test_adding():
    trie = build(["sun"])
    assert add_word(trie, "su") is True
    assert add_word(trie, "sun") is False
    assert trie == {"s": {"u": {"n": {"end": True}, "end": True}}}
    with pytest.raises(ValueError):
        build(["sun", ""])


def test_building():
    assert build(["b", "c", "b"]) == {"b": {"end": True}, "c": {"end": True}}
    assert build(()) == {}


def test_whole_words():
    trie = build(["moon", "moonlight"])
    assert has_word(trie, "moonlight") is True
    assert has_word(trie, "moon") is True
    assert has_word(trie, "moonli") is False
    assert has_word(trie, "oon") is False
    assert has_word(trie, "") is False


def test_counting():
    trie = build(["a", "ab", "abc", "b"])
    assert count_words(trie) == 4
    assert count_words(trie["a"]) == 3
    assert count_words(build([])) == 0
