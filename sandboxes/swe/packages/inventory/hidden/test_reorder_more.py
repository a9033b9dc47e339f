import pytest
from inventory import Stock, lot_count, reorder_list, stock_value


def test_lots():
    assert lot_count(6, 6) == 1
    assert lot_count(7, 6) == 2
    assert lot_count(1, 10) == 1
    assert lot_count(3, 1) == 3


def test_no_lots():
    assert lot_count(0, 3) == 0
    assert lot_count(-20, 3) == 0
    for size in (0, -1):
        with pytest.raises(ValueError):
            lot_count(5, size)


def test_reordering():
    stock = Stock({"salt": 9, "corn": 1})
    assert reorder_list(stock, {"salt": 10, "corn": 30}, 4) == [
        ("corn", 32),
        ("salt", 4),
    ]
    assert reorder_list(stock, {"salt": 9}) == []
    assert reorder_list(stock, {"corn": 2}) == [("corn", 10)]


def test_reserved_pieces_count():
    stock = Stock({"salt": 9})
    stock.reserve("salt", 5)
    assert reorder_list(stock, {"salt": 9}, 5) == [("salt", 5)]


def test_values():
    stock = Stock({"salt": 2, "corn": 10})
    assert stock_value(stock, {"salt": 7, "corn": 3}) == 44
    assert stock_value(stock, {}) == 0
    assert stock_value(stock, {"salt": 7}, 2) == 34
