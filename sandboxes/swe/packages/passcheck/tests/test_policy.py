import pytest

from passcheck import Policy


def test_length():
    policy = Policy(4, 1, longest=6)
    assert policy.problems("abc") == ["too short"]
    assert policy.problems("abcd") == []
    assert policy.problems("abcdef") == []
    assert policy.problems("abcdefg") == ["too long"]
    assert Policy(4, 1, longest=4).problems("abcd") == []
    with pytest.raises(ValueError):
        Policy(5, longest=4)


def test_defaults():
    assert Policy().problems("abcd123") == ["too short"]
    assert Policy().problems("abcd1234") == []
    assert Policy().problems("a1" * 32) == []
    assert Policy().problems("a1" * 32 + "b") == ["too long"]


def test_signs():
    policy = Policy(3)
    assert policy.problems("abc") == ["too plain"]
    assert policy.problems("aaa1") == []
    assert policy.problems("aaaa1") == ["repeats"]
    assert Policy(3, 3, 1).problems("aab1") == ["too plain", "repeats"]


def test_name():
    assert Policy(3).problems("xAnn123", "ann") == ["holds the name"]
    assert Policy(3).problems("xAnn123", "bob") == []


def test_allows():
    assert Policy(3).allows("abc1") is True
    assert Policy(3).allows("ab") is False
    assert Policy(3).allows("abc1", "abc") is False
    assert Policy(3).allows("abc1", old=["abc1"]) is False
