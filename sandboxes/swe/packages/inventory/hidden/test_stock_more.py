import pytest
from inventory import Stock


def test_deliveries():
    stock = Stock()
    assert stock.receive("pen", 2) == 2
    assert stock.receive("pen") == 3
    for quantity in (0, -1):
        with pytest.raises(ValueError):
            stock.receive("pen", quantity)


def test_one_piece():
    assert Stock().receive("pen", 1) == 1
    assert Stock().free("pen") == 0


def test_input_is_copied():
    given = {"pen": 1}
    Stock(given).receive("pen", 4)
    assert given == {"pen": 1}


def test_reservations():
    stock = Stock({"pen": 2, "ink": 9})
    assert stock.reserve("pen", 3) is False
    assert stock.reserve("pen", 2) is True
    assert stock.free("pen") == 0
    assert stock.reserve("ink", 1) and stock.reserve("ink", 3)
    assert stock.reserved == {"pen": 2, "ink": 4}


def test_unknown_item():
    assert Stock().reserve("pen", 1) is False


def test_shipping():
    stock = Stock({"pen": 7})
    stock.reserve("pen", 4)
    with pytest.raises(ValueError):
        stock.ship("pen", 5)
    assert stock.ship("pen", 3) == 4
    assert stock.reserved == {"pen": 1}
    assert stock.ship("pen", 1) == 3
    assert stock.free("pen") == 3
    assert "pen" not in stock.reserved
