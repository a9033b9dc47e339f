"""Orders: dicts from item name to quantity."""


def missing_items(stock, order):
    """Return what the stock lacks for the order, as a dict."""
    missing = {}
    for item, wanted in order.items():
        lack = wanted - stock.free(item)
        if lack > 0:
            missing[item] = lack
    return missing


def fill_order(stock, order, partial=False):
    """Reserve the order and return what was reserved; all or nothing at first."""
    if missing_items(stock, order) and not partial:
        return {}
    taken = {}
    for item, quantity in order.items():
        amount = min(quantity, stock.free(item))
        if amount > 0:
            stock.reserve(item, amount)
            taken[item] = amount
    return taken
