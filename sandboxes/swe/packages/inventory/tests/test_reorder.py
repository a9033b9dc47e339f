import pytest
from inventory import Stock, lot_count, reorder_list, stock_value


def test_lot_count():
    assert lot_count(11, 5) == 3
    assert lot_count(10, 5) == 2
    assert lot_count(1, 5) == 1
    assert lot_count(0, 5) == 0


def test_lot_count_bad():
    assert lot_count(-7, 5) == 0
    assert lot_count(4, 1) == 4
    with pytest.raises(ValueError):
        lot_count(3, 0)


def test_reorder_list():
    stock = Stock({"tea": 4, "rice": 50})
    levels = {"tea": 20, "rice": 50, "oil": 6}
    assert reorder_list(stock, levels) == [("oil", 10), ("tea", 20)]
    assert reorder_list(stock, {"tea": 5}, lot_size=3) == [("tea", 3)]
    assert reorder_list(stock, {"tea": 4}) == []


def test_stock_value():
    stock = Stock({"tea": 4, "rice": 50})
    assert stock_value(stock, {"tea": 3, "rice": 2}) == 112
    assert stock_value(stock, {"tea": 3}) == 12
    assert stock_value(stock, {"rice": 2}, default=1) == 104
