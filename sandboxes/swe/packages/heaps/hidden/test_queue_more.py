import pytest
from heaps import PriorityQueue


def test_many():
    queue = PriorityQueue()
    for number in [7, 2, 9, 4, 1, 8, 3]:
        queue.push(f"job{number}", number)
    taken = [queue.pop() for _ in range(7)]
    assert taken == ["job1", "job2", "job3", "job4", "job7", "job8", "job9"]


def test_lengths():
    queue = PriorityQueue()
    assert queue.push("a") == 1
    assert queue.push("b") == 2
    queue.pop()
    assert queue.push("c") == 2


def test_first_come():
    queue = PriorityQueue()
    for name in ("z", "y", "x"):
        queue.push(name, 4)
    queue.push("w")
    assert queue.peek() == "w"
    assert [queue.pop() for _ in range(4)] == ["w", "z", "y", "x"]


def test_nothing_left():
    queue = PriorityQueue()
    assert queue.peek() is None
    assert queue.peek(3) == 3
    for name, priority in (("b", 1), ("a", 0)):
        queue.push(name, priority)
    queue.push("default")
    assert [queue.pop() for _ in range(3)] == ["a", "default", "b"]
    with pytest.raises(IndexError, match="queue"):
        queue.pop()
