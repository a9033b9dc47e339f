import pytest

from undo import Editor


def test_insert():
    editor = Editor("held")
    assert editor.insert(3, "lo wor") is True
    assert editor.text() == "hello word"
    editor.insert(10, "s")
    editor.insert(0, "> ")
    assert editor.text() == "> hello words"
    assert editor.insert(1, "") is False


def test_insert_refuses():
    for place in (-1, 4):
        with pytest.raises(ValueError):
            Editor("abc").insert(place, "x")


def test_delete():
    editor = Editor("abcdef")
    assert editor.delete(1, 3) == "bc"
    assert editor.text() == "adef"
    assert editor.delete(3, 2) == "e"
    assert editor.text() == "adf"


def test_replace():
    editor = Editor("a-b-c")
    assert editor.replace("-", "+") == 1
    assert editor.text() == "a+b-c"
    assert editor.replace("x", "y") == 0
    assert Editor("aaa").replace("a", "b", 2) == 2


def test_history():
    editor = Editor("ab", limit=1)
    editor.delete(0, 1)
    editor.replace("b", "c")
    assert editor.history.undo(3) == 1
    assert editor.text() == "b"
    assert Editor().history.limit == 100
