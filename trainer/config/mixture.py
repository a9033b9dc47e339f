"""The environments that one run draws from, and their shares: `math:0.4,frozen_lake:0.6`.

Pure: text to shares, shares to an order of groups. Whether there are such environments is asked elsewhere.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import lcm

__all__ = ["MOST_ENVIRONMENTS", "Share", "dealt", "shares_in"]

MOST_ENVIRONMENTS = 16
MOST_PARTS = 10_000
"""Least common denominator of the shares: four decimal places, and as many groups until their order repeats."""
_SHARE = re.compile(r"\d{0,5}\.?\d{1,5}|\d{1,5}/\d{1,5}")


@dataclass(frozen=True, slots=True)
class Share:
    """One environment of a run."""

    env: str
    share: Fraction


@lru_cache(maxsize=64)
def shares_in(text: str) -> tuple[Share, ...]:
    """Return the environments that `env` names: one, with all groups, or several as `NAME:SHARE,NAME:SHARE`.

    Raise `ValueError` for what is no share, for shares that are not 1 together, and for a name that comes twice.
    """
    parts = [part.strip() for part in text.split(",")]
    if len(parts) == 1:
        name, colon, share = text.rpartition(":")
        if colon and _SHARE.fullmatch(share):
            raise ValueError(f"{text!r} is one environment, which has no share: write {name!r}")
        return (Share(text, Fraction(1)),)
    if len(parts) > MOST_ENVIRONMENTS:
        raise ValueError(f"got {len(parts)} environments, expected at most {MOST_ENVIRONMENTS}")
    found = tuple(_share(part) for part in parts)
    twice = [name for name, count in Counter(each.env for each in found).items() if count > 1]
    if twice:
        raise ValueError(f"environment {twice[0]!r} comes twice: give it one share")
    total = sum(each.share for each in found)
    if total != 1:
        remedy = ",".join(f"{each.env}:{each.share / total}" for each in found)
        raise ValueError(f"the shares are {float(total):g} together, expected 1: such as {remedy}")
    if lcm(*(each.share.denominator for each in found)) > MOST_PARTS:
        raise ValueError(f"the shares of {text!r} are too fine: expected at most four decimal places")
    return found


def _share(part: str) -> Share:
    name, colon, share = part.rpartition(":")
    if not colon or not name or not _SHARE.fullmatch(share):
        raise ValueError(f"got {part!r} among several environments, expected NAME:SHARE such as math:0.4")
    top, _, bottom = share.partition("/")
    if bottom and not int(bottom):
        raise ValueError(f"the share of {name!r} is no number: got {share}, expected one above 0 and below 1")
    value = Fraction(top) / int(bottom or 1)
    if not 0 < value < 1:
        raise ValueError(f"the share of {name!r} is {share}, expected a number above 0 and below 1")
    return Share(name, value)


def dealt(shares: Sequence[Share], first: int, count: int) -> Mapping[str, int]:
    """Return how many of `count` places each environment gets, those before the `first` one dealt alike.

    Each place goes to the environment that is furthest behind its share, the first named one of several: none is ever a
    whole place ahead of it, and the order repeats. So shares hold over a run, and a resumed one deals on.
    """
    order = _order(tuple(shares))
    got = Counter(order[place % len(order)] for place in range(first, first + count))
    return {each.env: got[each.env] for each in shares}


@lru_cache(maxsize=64)
def _order(shares: tuple[Share, ...]) -> tuple[str, ...]:
    places = lcm(*(each.share.denominator for each in shares))
    weights = [int(each.share * places) for each in shares]
    behind = [0] * len(shares)
    order = []
    for _ in range(places):
        behind = [owed + weight for owed, weight in zip(behind, weights, strict=True)]
        chosen = max(range(len(shares)), key=lambda one: (behind[one], -one))
        behind[chosen] -= places
        order.append(shares[chosen].env)
    return tuple(order)
