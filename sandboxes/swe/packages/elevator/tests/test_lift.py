import pytest

from elevator import Lift


def test_new_lift():
    lift = Lift(5)
    assert (lift.floor, lift.direction, lift.calls) == (0, 0, [])
    assert Lift(5, 5).floor == 5
    for floor in (-1, 6):
        with pytest.raises(ValueError):
            Lift(5, floor)


def test_call():
    lift = Lift(5, 2)
    assert lift.call(5) is True
    assert lift.call(5) is False
    assert lift.call(2) is False
    assert lift.call(0) is True
    for floor in (-1, 6):
        with pytest.raises(ValueError):
            lift.call(floor)


def test_turn():
    lift = Lift(5, 2)
    lift.call(1)
    lift.turn()
    assert lift.direction == -1
    lift.call(4)
    lift.turn()
    assert lift.direction == -1
    lift.calls = []
    lift.turn()
    assert lift.direction == 0


def test_step():
    lift = Lift(5, 2)
    lift.call(4)
    lift.call(1)
    assert [lift.step() for _ in range(5)] == [False, True, False, False, True]
    assert (lift.floor, lift.calls) == (1, [])
    assert lift.step() is False
