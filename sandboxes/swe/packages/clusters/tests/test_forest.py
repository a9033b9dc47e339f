import pytest

from clusters import Forest


def test_add():
    forest = Forest(["a"])
    assert forest.add("a") is False
    assert forest.add("b") is True
    assert forest.size == {"a": 1, "b": 1}
    assert Forest().parent == {}


def test_find():
    forest = Forest("abc")
    assert forest.find("b") == "b"
    forest.parent = {"a": "b", "b": "c", "c": "c"}
    assert forest.find("a") == "c"
    assert forest.parent["a"] == "c"
    with pytest.raises(KeyError):
        forest.find("z")


def test_union():
    forest = Forest("abcd")
    assert forest.union("a", "b") == "a"
    assert forest.union("b", "a") is None
    assert forest.find("b") == "a"
    assert forest.size == {"a": 2, "c": 1, "d": 1}


def test_union_keeps_the_larger():
    forest = Forest("abcd")
    forest.union("a", "b")
    assert forest.union("c", "b") == "a"
    assert forest.size == {"a": 3, "d": 1}
    assert forest.find("c") == "a"
