import pytest

from undo import History


def test_push():
    history = History("a")
    assert history.push("b") is True
    assert history.push("b") is False
    assert (history.state, history.past) == ("b", ["a"])


def test_limit():
    history = History(0, 2)
    for number in (1, 2, 3):
        history.push(number)
    assert history.past == [1, 2]
    assert History(0).limit == 100
    with pytest.raises(ValueError):
        History(0, 0)


def test_undo():
    history = History(0, limit=5)
    assert history.undo() == 0
    for number in (1, 2, 3):
        history.push(number)
    assert history.undo() == 1
    assert (history.state, history.future) == (2, [3])
    assert history.undo(5) == 2
    assert history.state == 0


def test_redo():
    history = History("a")
    history.push("b")
    history.push("c")
    history.undo(2)
    assert history.redo() == 1
    assert (history.state, history.past) == ("b", ["a"])
    assert history.redo(9) == 1
    assert history.state == "c"
    history.undo()
    history.push("d")
    assert (history.redo(), history.state) == (0, "d")
