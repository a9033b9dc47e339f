from inventory import Stock, fill_order, missing_items


def test_missing_items():
    stock = Stock({"cup": 3, "jug": 1})
    assert missing_items(stock, {"cup": 5, "jug": 1}) == {"cup": 2}
    assert missing_items(stock, {"pan": 1}) == {"pan": 1}
    assert missing_items(stock, {"cup": 3}) == {}


def test_fill_order():
    stock = Stock({"cup": 3, "jug": 1})
    assert fill_order(stock, {"cup": 2, "jug": 1}) == {"cup": 2, "jug": 1}
    assert stock.reserved == {"cup": 2, "jug": 1}


def test_fill_order_all_or_nothing():
    stock = Stock({"cup": 3, "jug": 1})
    assert fill_order(stock, {"cup": 2, "jug": 5}) == {}
    assert stock.reserved == {}


def test_fill_order_partial():
    stock = Stock({"cup": 3, "jug": 1})
    order = {"cup": 2, "jug": 5, "pan": 1}
    assert fill_order(stock, order, partial=True) == {"cup": 2, "jug": 1}
    assert stock.free("jug") == 0
