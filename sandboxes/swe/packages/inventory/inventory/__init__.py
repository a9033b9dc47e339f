"""Stock, orders and reordering of a small warehouse."""

from inventory.orders import fill_order, missing_items
from inventory.reorder import lot_count, reorder_list, stock_value
from inventory.stock import Stock

__all__ = [
    "Stock",
    "fill_order",
    "lot_count",
    "missing_items",
    "reorder_list",
    "stock_value",
]
