import pytest

from prefixes import build, complete, longest_prefix, shortest_unique

TRIE = build(["red", "reed", "reef", "rye", "blue", "re", "ree"])


def test_completions():
    assert complete(TRIE, "ree") == ["ree", "reed", "reef"]
    assert complete(TRIE, "b") == ["blue"]
    assert complete(TRIE, "rx") == []
    assert complete(TRIE, "blues") == []
    assert complete({}, "") == []


def test_limits():
    assert complete(TRIE, "r") == ["re", "red", "ree", "reed", "reef"]
    assert complete(TRIE, "r", limit=2) == ["re", "red"]
    assert complete(TRIE, "", 9)[0] == "blue"
    assert len(complete(TRIE, "", 9)) == 7


def test_longest():
    assert longest_prefix(TRIE, "reeds") == "reed"
    assert longest_prefix(TRIE, "rest") == "re"
    assert longest_prefix(TRIE, "blue") == "blue"
    assert longest_prefix(TRIE, "blu") == ""
    assert longest_prefix(TRIE, "") == ""
    assert longest_prefix(build(["a"]), "apple") == "a"


def test_unique():
    assert shortest_unique(TRIE, "blue") == "b"
    assert shortest_unique(TRIE, "reed") == "reed"
    assert shortest_unique(TRIE, "rye") == "ry"
    assert shortest_unique(TRIE, "re") == "re"
    with pytest.raises(KeyError):
        shortest_unique(TRIE, "green")
