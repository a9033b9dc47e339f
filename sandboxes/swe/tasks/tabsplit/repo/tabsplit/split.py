"""Divide one amount among several people."""

from __future__ import annotations

from collections.abc import Mapping

from tabsplit.money import Money


def split_weighted(amount: Money, weights: Mapping[str, int]) -> dict[str, Money]:
    """Divide `amount` in proportion to the weights.

    The order of the result is the order of `weights`.
    """
    if any(weight < 0 for weight in weights.values()):
        raise ValueError("weights must not be negative")
    total = sum(weights.values())
    if total == 0:
        raise ValueError("at least one weight must be positive")
    return {name: Money(round(amount.cents * weight / total)) for name, weight in weights.items()}
