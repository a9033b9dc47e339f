import pytest
from ring import RingBuffer


def test_round_and_round():
    buffer = RingBuffer(2)
    for item in range(7):
        assert buffer.push(item) is True
    assert buffer.items() == [5, 6]
    assert buffer.pop() == 5
    assert buffer.items() == [6]


def test_no_overwrite():
    buffer = RingBuffer(3, False)
    for item in "pqr":
        assert buffer.push(item) is True
    assert buffer.push("s") is False
    assert buffer.pop() == "p"
    assert buffer.push("t") is True
    assert buffer.items() == ["q", "r", "t"]


def test_new_buffer():
    assert RingBuffer(4).items() == []
    assert RingBuffer(4).count == 0
    assert RingBuffer(1).overwrite is True


def test_empty():
    buffer = RingBuffer(5)
    with pytest.raises(IndexError):
        buffer.pop()
    buffer.push("v")
    assert buffer.pop() == "v"
    assert buffer.count == 0
    with pytest.raises(IndexError):
        buffer.pop()


def test_capacity():
    for capacity in (0, -3):
        with pytest.raises(ValueError):
            RingBuffer(capacity)
