"""When to buy again, and what the stock is worth."""


def lot_count(needed, lot_size):
    """Return how many lots hold at least the needed pieces."""
    if lot_size <= 0:
        raise ValueError("a lot must hold something")
    if needed <= 0:
        return 0
    return (needed + lot_size - 1) // lot_size


def reorder_list(stock, levels, lot_size=10):
    """Return (item, pieces) to buy for items below their level, by name."""
    orders = []
    for item in sorted(levels):
        shortage = levels[item] - stock.free(item)
        lots = lot_count(shortage, lot_size)
        if lots > 0:
            orders.append((item, lots * lot_size))
    return orders


def stock_value(stock, prices, default=0):
    """Return the value of the stock; items without price count default."""
    value = 0
    for name, quantity in stock.quantities.items():
        price = prices.get(name, default)
        value += price * quantity
    return value
