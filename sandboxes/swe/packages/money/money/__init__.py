"""Money in cents."""

from money.cents import discount, parse_cents, show_cents
from money.split import split_by, split_evenly
from money.tax import marginal_rate, net_income, tax

__all__ = [
    "discount",
    "marginal_rate",
    "net_income",
    "parse_cents",
    "show_cents",
    "split_by",
    "split_evenly",
    "tax",
]
