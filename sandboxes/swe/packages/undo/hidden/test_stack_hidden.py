import pytest

from undo import History


def test_pushing():
    history = History(1)
    assert [history.push(n) for n in (1, 2, 2, 1)] == [False, True, False, True]
    assert history.past == [1, 2]
    assert history.state == 1


def test_limits():
    history = History("x", limit=1)
    history.push("y")
    history.push("z")
    assert history.past == ["y"]
    assert history.undo(2) == 1
    assert history.state == "y"
    for limit in (0, -1):
        with pytest.raises(ValueError):
            History("x", limit)
    assert History("x").limit == 100


def test_back():
    history = History("a")
    history.push("b")
    history.push("c")
    assert history.undo(0) == 0
    assert history.undo(2) == 2
    assert (history.state, history.past, history.future) == ("a", [], ["c", "b"])
    assert history.undo() == 0


def test_back_once():
    history = History("a")
    history.push("b")
    history.push("c")
    history.undo()
    assert (history.state, history.past) == ("b", ["a"])


def test_forward():
    history = History(0)
    for number in range(1, 5):
        history.push(number)
    history.undo(3)
    assert history.redo() == 1
    assert (history.state, history.past, history.future) == (2, [0, 1], [4, 3])
    assert history.redo(2) == 2
    assert history.redo() == 0
    assert history.state == 4


def test_new_future():
    history = History(0)
    history.push(1)
    history.undo()
    assert history.push(0) is False
    assert history.future == [1]
    assert history.push(5) is True
    assert history.future == []
