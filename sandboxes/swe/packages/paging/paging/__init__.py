"""Pages of results and the links between them."""

from paging.links import label, neighbours, window
from paging.pages import item_range, page_count, page_items, page_of

__all__ = [
    "item_range",
    "label",
    "neighbours",
    "page_count",
    "page_items",
    "page_of",
    "window",
]
