"""Bank accounts with entries, transfers and statements."""

from ledger.accounts import Account, InsufficientFunds
from ledger.statements import balance_after, largest_entry, totals
from ledger.transfers import split_amount, transfer

__all__ = [
    "Account",
    "InsufficientFunds",
    "balance_after",
    "largest_entry",
    "split_amount",
    "totals",
    "transfer",
]
