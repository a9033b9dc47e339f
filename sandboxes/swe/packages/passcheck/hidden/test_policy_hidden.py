import pytest

from passcheck import Policy


def test_bounds():
    assert Policy(5, longest=5).problems("ab12c") == []
    assert Policy(5, longest=5).problems("ab12") == ["too short"]
    assert Policy(5, longest=5).problems("ab12cd") == ["too long"]
    with pytest.raises(ValueError):
        Policy(65)


def test_usual():
    assert Policy().problems("xy12xy1") == ["too short"]
    assert Policy().problems("xy12xy12") == []
    assert Policy().problems("k7" * 32) == []
    assert Policy().problems("k7" * 32 + "k") == ["too long"]
    assert Policy().problems("zzz77788") == []
    assert Policy().problems("zzzz7788") == ["repeats"]
    assert Policy().problems("abcdefgh") == ["too plain"]


def test_many_problems():
    assert Policy().problems("bbbb", "B") == [
        "too short",
        "too plain",
        "repeats",
        "holds the name",
    ]
    assert Policy(1, 4).problems("aB3") == ["too plain"]
    assert Policy(1, 4).problems("aB3.") == []


def test_users():
    assert Policy(1).problems("q1EVE", "Eve") == ["holds the name"]
    assert Policy(1).problems("q1EVE", "Adam") == []
    assert Policy(1).problems("q1EVE", "") == []


def test_allowing():
    policy = Policy(2, 1)
    assert policy.allows("ab", old=["abc"]) is True
    assert policy.allows("abc", "x", ["abc"]) is False
    assert policy.allows("abc", "ABC") is False
    assert policy.allows("a") is False
