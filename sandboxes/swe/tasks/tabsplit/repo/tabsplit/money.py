"""Amounts of money as whole cents."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Money:
    """An exact amount; negative amounts are refunds."""

    cents: int = 0

    @classmethod
    def parse(cls, text: str) -> Money:
        """Read '12.34', '12' or '-0.50'."""
        sign = -1 if text.startswith("-") else 1
        units, _, fraction = text.lstrip("+-").partition(".")
        if not units.isdigit() or (fraction and (not fraction.isdigit() or len(fraction) > 2)):
            raise ValueError(f"not an amount of money: {text!r}")
        return cls(sign * (int(units) * 100 + int(fraction.ljust(2, "0") or 0)))

    def __add__(self, other: Money) -> Money:
        return Money(self.cents + other.cents)

    def __sub__(self, other: Money) -> Money:
        return Money(self.cents - other.cents)

    def __neg__(self) -> Money:
        return Money(-self.cents)

    def __str__(self) -> str:
        sign = "-" if self.cents < 0 else ""
        return f"{sign}{abs(self.cents) // 100}.{abs(self.cents) % 100:02d}"

    def __repr__(self) -> str:
        return f"Money({self.cents})"
