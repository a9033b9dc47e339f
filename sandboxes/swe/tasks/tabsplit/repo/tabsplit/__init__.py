"""Share bills and keep tabs."""

from tabsplit.money import Money
from tabsplit.split import split_weighted
from tabsplit.tab import Tab

__all__ = ["Money", "Tab", "split_weighted"]
