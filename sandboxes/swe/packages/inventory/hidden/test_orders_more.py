from inventory import Stock, fill_order, missing_items


def test_lacking():
    stock = Stock({"hat": 2})
    stock.reserve("hat", 1)
    assert missing_items(stock, {"hat": 3}) == {"hat": 2}
    assert missing_items(stock, {"hat": 1}) == {}
    assert missing_items(stock, {"hat": 1, "cap": 4}) == {"cap": 4}
    assert missing_items(stock, {"hat": 2}) == {"hat": 1}


def test_complete_orders():
    stock = Stock({"hat": 2, "cap": 2})
    assert fill_order(stock, {"hat": 2}) == {"hat": 2}
    assert fill_order(stock, {"hat": 1, "cap": 1}) == {}
    assert stock.free("cap") == 2
    assert fill_order(stock, {"cap": 1}) == {"cap": 1}


def test_partial_orders():
    stock = Stock({"hat": 2})
    assert fill_order(stock, {"hat": 9, "cap": 9}, True) == {"hat": 2}
    assert stock.reserved == {"hat": 2}
    assert fill_order(stock, {"hat": 1}, True) == {}
    assert fill_order(Stock({"hat": 5}), {"hat": 1}, True) == {"hat": 1}
