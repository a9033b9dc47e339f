import pytest

from prefixes import add_word, build, count_words, has_word


def test_add_word():
    trie = {}
    assert add_word(trie, "to") is True
    assert add_word(trie, "to") is False
    assert trie == {"t": {"o": {"end": True}}}
    with pytest.raises(ValueError):
        add_word(trie, "")


def test_build():
    assert build([]) == {}
    assert build(["a", "ab"]) == {"a": {"end": True, "b": {"end": True}}}


def test_has_word():
    trie = build(["car", "cart", "dog"])
    assert has_word(trie, "car") is True
    assert has_word(trie, "ca") is False
    assert has_word(trie, "carts") is False
    assert has_word(trie, "xy") is False


def test_count_words():
    assert count_words({}) == 0
    assert count_words(build(["car", "cart", "dog", "car"])) == 3
    assert count_words(build(["a"])) == 1
