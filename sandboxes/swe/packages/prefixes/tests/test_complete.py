import pytest

from prefixes import build, complete, longest_prefix, shortest_unique

TRIE = build(["tea", "ten", "to", "toast", "inn", "in"])


def test_complete():
    assert complete(TRIE, "te") == ["tea", "ten"]
    assert complete(TRIE, "in") == ["in", "inn"]
    assert complete(TRIE, "x") == []
    assert complete(TRIE, "teas") == []


def test_complete_limit():
    assert complete(TRIE, "") == ["in", "inn", "tea", "ten", "to"]
    assert complete(TRIE, "t", 3) == ["tea", "ten", "to"]
    assert complete(TRIE, "t", limit=1) == ["tea"]


def test_longest_prefix():
    assert longest_prefix(TRIE, "toaster") == "toast"
    assert longest_prefix(TRIE, "tomato") == "to"
    assert longest_prefix(TRIE, "ten") == "ten"
    assert longest_prefix(TRIE, "house") == ""


def test_shortest_unique():
    assert shortest_unique(TRIE, "toast") == "toa"
    assert shortest_unique(TRIE, "inn") == "inn"
    assert shortest_unique(TRIE, "in") == "in"
    with pytest.raises(KeyError):
        shortest_unique(TRIE, "on")
