import pytest

from parking import Garage


def test_new_garage():
    assert Garage(3).free_places() == 3
    assert Garage(1).income == 0
    with pytest.raises(ValueError):
        Garage(0)


def test_enter():
    garage = Garage(1)
    assert garage.enter("A1", 10) is True
    assert garage.free_places() == 0
    assert garage.enter("B2", 11) is False
    assert garage.inside == {"A1": 10}


def test_enter_twice():
    garage = Garage(2)
    garage.enter("A1", 10)
    with pytest.raises(ValueError):
        garage.enter("A1", 12)


def test_leave():
    garage = Garage(2)
    garage.enter("A1", 100)
    garage.enter("B2", 110)
    assert garage.leave("A1", 200) == 500
    assert garage.leave("B2", 110) == 0
    assert garage.income == 500
    assert garage.free_places() == 2


def test_leave_refuses():
    garage = Garage(2)
    garage.enter("A1", 100)
    with pytest.raises(ValueError):
        garage.leave("B2", 120)
    with pytest.raises(ValueError):
        garage.leave("A1", 99)
