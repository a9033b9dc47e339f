import pytest

from undo import Editor


def test_inserting():
    editor = Editor()
    assert editor.text() == ""
    editor.insert(0, "ad")
    editor.insert(1, "bc")
    assert editor.text() == "abcd"
    editor.insert(4, "e")
    assert editor.text() == "abcde"
    assert editor.insert(0, "") is False


def test_bad_places():
    editor = Editor("ab")
    with pytest.raises(ValueError):
        editor.insert(3, "x")
    with pytest.raises(ValueError):
        editor.insert(-1, "x")
    assert editor.history.past == []


def test_deleting():
    editor = Editor("0123456789")
    assert editor.delete(8, 5) == "567"
    assert editor.text() == "0123489"
    assert editor.delete(0, 2) == "01"
    assert editor.delete(3, 3) == ""
    assert editor.text() == "23489"
    assert len(editor.history.past) == 2


def test_replacing():
    editor = Editor("x y x y x")
    assert editor.replace("x", "z", 2) == 2
    assert editor.text() == "z y z y x"
    assert editor.replace("y", "w") == 1
    assert editor.replace("x", "v", most=9) == 1
    assert editor.replace("q", "v", most=9) == 0
    assert editor.text() == "z w z y v"


def test_undo_edits():
    editor = Editor("one", 2)
    for words in ("a", "b", "c"):
        editor.insert(0, words)
    assert editor.history.undo(9) == 2
    assert editor.text() == "aone"
    assert editor.history.redo() == 1
    assert editor.text() == "baone"
    assert Editor("q").history.limit == 100
