import pytest
from inventory import Stock


def test_receive():
    stock = Stock({"nut": 5})
    assert stock.receive("nut", 3) == 8
    assert stock.receive("bolt") == 1
    assert stock.quantities == {"nut": 8, "bolt": 1}
    with pytest.raises(ValueError):
        stock.receive("nut", 0)


def test_free():
    stock = Stock({"nut": 5})
    assert stock.free("nut") == 5
    assert stock.free("gear") == 0
    stock.reserve("nut", 2)
    assert stock.free("nut") == 3


def test_reserve():
    stock = Stock({"nut": 5})
    assert stock.reserve("nut", 4) is True
    assert stock.reserve("nut", 2) is False
    assert stock.reserve("nut", 1) is True
    assert stock.reserved == {"nut": 5}


def test_ship():
    stock = Stock({"nut": 5})
    stock.reserve("nut", 3)
    assert stock.ship("nut", 1) == 4
    assert stock.reserved == {"nut": 2}
    assert stock.ship("nut", 2) == 2
    assert stock.reserved == {}


def test_ship_too_much():
    with pytest.raises(ValueError):
        Stock({"nut": 5}).ship("nut", 1)
