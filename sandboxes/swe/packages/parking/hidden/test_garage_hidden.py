import pytest

from parking import Garage


def test_places():
    garage = Garage(2)
    garage.enter("X", 0)
    assert garage.free_places() == 1
    garage.enter("Y", 5)
    assert garage.enter("Z", 6) is False
    garage.leave("X", 10)
    assert garage.enter("Z", 12) is True
    assert garage.inside == {"Y": 5, "Z": 12}


def test_income():
    garage = Garage(5)
    assert garage.income == 0
    for plate in "PQR":
        garage.enter(plate, 30)
    assert garage.leave("P", 90) == 300
    assert garage.leave("R", 160) == 700
    assert garage.income == 1000
    assert list(garage.inside) == ["Q"]


def test_errors():
    with pytest.raises(ValueError):
        Garage(-1)
    with pytest.raises(ValueError):
        Garage(0)
    garage = Garage(1)
    garage.enter("X", 50)
    with pytest.raises(ValueError):
        garage.enter("X", 60)
    with pytest.raises(ValueError):
        garage.leave("Y", 60)
    with pytest.raises(ValueError):
        garage.leave("X", 49)


def test_leave_at_once():
    garage = Garage(1)
    garage.enter("X", 50)
    assert garage.leave("X", 50) == 0
    assert garage.free_places() == 1
