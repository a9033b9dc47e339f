import pytest
from heaps import PriorityQueue


def test_order():
    queue = PriorityQueue()
    assert queue.push("low", 5) == 1
    assert queue.push("high", 1) == 2
    assert queue.push("middle", 3) == 3
    assert [queue.pop() for _ in range(3)] == ["high", "middle", "low"]


def test_equal_priorities():
    queue = PriorityQueue()
    for name in ["d", "a", "c", "b"]:
        queue.push(name)
    queue.push("first", -1)
    assert [queue.pop() for _ in range(5)] == ["first", "d", "a", "c", "b"]


def test_peek():
    queue = PriorityQueue()
    assert queue.peek() is None
    assert queue.peek("none") == "none"
    queue.push("x", 2)
    queue.push("y", 1)
    assert (queue.peek(), queue.peek()) == ("y", "y")


def test_empty():
    queue = PriorityQueue()
    queue.push("x")
    assert queue.pop() == "x"
    queue.push("one", 1)
    queue.push("zero")
    assert queue.pop() == "zero"
    assert queue.pop() == "one"
    with pytest.raises(IndexError, match="queue"):
        queue.pop()
