import pytest

from elevator import Lift


def test_start():
    lift = Lift(8, 3)
    assert (lift.top, lift.floor, lift.direction) == (8, 3, 0)
    assert Lift(0).floor == 0
    with pytest.raises(ValueError):
        Lift(2, 3)
    with pytest.raises(ValueError):
        Lift(2, -1)


def test_calls():
    lift = Lift(4)
    assert [lift.call(n) for n in (4, 1, 0, 1)] == [True, True, False, False]
    assert lift.calls == [4, 1]
    with pytest.raises(ValueError):
        lift.call(5)
    with pytest.raises(ValueError):
        lift.call(-1)


def test_up_first():
    lift = Lift(9, 5)
    lift.call(3)
    lift.call(6)
    lift.turn()
    assert lift.direction == 1
    lift.step()
    assert (lift.floor, lift.calls) == (6, [3])
    lift.turn()
    assert lift.direction == -1


def test_keeps_down():
    lift = Lift(9, 5)
    lift.call(2)
    assert lift.step() is False
    lift.call(8)
    assert [lift.step() for _ in range(3)] == [False, True, False]
    assert (lift.floor, lift.direction) == (3, 1)


def test_rest():
    lift = Lift(3, 1)
    lift.call(2)
    assert lift.step() is True
    assert lift.step() is False
    assert (lift.floor, lift.direction) == (2, 0)
