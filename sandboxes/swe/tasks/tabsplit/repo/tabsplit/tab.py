"""A running tab among friends."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tabsplit.money import Money
from tabsplit.split import split_weighted


class Tab:
    """Who paid what, and who owes whom."""

    def __init__(self, people: Iterable[str]) -> None:
        self.people = list(people)
        if len(set(self.people)) != len(self.people):
            raise ValueError("names must be distinct")
        self._balances = {name: Money() for name in self.people}

    def add(self, amount: Money, *, paid_by: str, weights: Mapping[str, int] | None = None) -> None:
        """Record a bill; without weights everybody shares it equally."""
        if paid_by not in self._balances:
            raise KeyError(paid_by)
        shares = split_weighted(amount, weights or dict.fromkeys(self.people, 1))
        self._balances[paid_by] += amount
        for name, share in shares.items():
            self._balances[name] -= share

    def balances(self) -> dict[str, Money]:
        """Return what each person is owed (negative: owes)."""
        return dict(self._balances)

    def settle(self) -> list[tuple[str, str, Money]]:
        """Return payments (from, to, amount) that bring every balance to zero."""
        left = dict(self._balances)
        payments = []
        while True:
            debtor = min(left, key=lambda name: left[name].cents)
            creditor = max(left, key=lambda name: left[name].cents)
            amount = min(-left[debtor].cents, left[creditor].cents)
            if amount <= 0:
                return payments
            payments.append((debtor, creditor, Money(amount)))
            left[debtor] += Money(amount)
            left[creditor] -= Money(amount)
