import pytest
from ring import RingBuffer


def test_push_and_items():
    buffer = RingBuffer(3)
    assert buffer.push("a") is True
    buffer.push("b")
    assert buffer.items() == ["a", "b"]
    assert buffer.count == 2


def test_overwrite():
    buffer = RingBuffer(3)
    for item in [1, 2, 3, 4, 5]:
        assert buffer.push(item)
    assert buffer.items() == [3, 4, 5]
    assert buffer.count == 3


def test_refuse():
    buffer = RingBuffer(2, overwrite=False)
    assert [buffer.push(item) for item in "abc"] == [True, True, False]
    assert buffer.items() == ["a", "b"]


def test_pop():
    buffer = RingBuffer(2)
    for item in "xyz":
        buffer.push(item)
    assert buffer.pop() == "y"
    assert buffer.pop() == "z"
    with pytest.raises(IndexError):
        buffer.pop()


def test_pop_then_push():
    buffer = RingBuffer(1, overwrite=False)
    buffer.push(1)
    assert buffer.pop() == 1
    assert buffer.push(2) is True
    with pytest.raises(ValueError):
        RingBuffer(0)
