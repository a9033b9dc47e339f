"""Draw a shop's catalogue and what customers want of it. Pure, all from seeds.

A goal is made from a product, so that product fulfils it. Goals of equal content name the same product, the first in the
catalogue that fulfils it, so equal goals are equal payloads and share a split.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from rock_env.tasks import derive_seed
from sandboxes.webshop.catalogue import Catalogue
from sandboxes.webshop.product import Goal, Product
from sandboxes.webshop.words import BRANDS, KINDS, Department, Kind

__all__ = ["Wish", "brief_goal", "random_catalogue", "random_goal", "short"]

_ID_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_IDS = 36**8
_STRIDE = 2654435761  # a prime, so that ids of different products differ
_UPPER_STEP = 10
_FIRST_WORDS = (
    "i need a {kind}",
    "i am looking for a {kind}",
    "find me a {kind}",
    "i want to buy a {kind}",
    "show me a {kind}",
)


@dataclass(frozen=True, slots=True)
class Wish:
    """How much goals ask for, at most what the product has."""

    attributes: int
    options: int
    brief: bool
    """In words of a few letters without grammar."""


def random_catalogue(count: int, *, kinds: int, seed: int) -> Catalogue:
    """Draw `count` products, as many of each of the first `kinds` of a shuffled list of kinds as of any other."""
    chosen = list(KINDS)
    Random(derive_seed("webshop kinds", seed)).shuffle(chosen)
    offset = derive_seed("webshop ids", seed)
    rng = Random(derive_seed("webshop", seed))
    return Catalogue(
        [_product(rng, chosen[number % kinds], number=number, offset=offset) for number in range(count)]
    )


def _product(rng: Random, kind: Kind, *, number: int, offset: int) -> Product:
    own = kind.department
    attributes = tuple(rng.sample(own.attributes, 3))
    brand = rng.choice(BRANDS)
    low, high = own.prices
    price = round(math.exp(rng.uniform(math.log(low), math.log(high))), 2)
    shown = ", ".join(attribute.title() for attribute in attributes[:2])
    return Product(
        asin=_asin(number, offset),
        name=f"{brand} {kind.name.capitalize()}, {shown} ({number:05d})",
        query=kind.name,
        category=kind.category,
        price=price,
        attributes=attributes,
        options=_options(rng, own),
        features=tuple(f"{attribute.capitalize()}: {brand} makes it so." for attribute in attributes),
        description=f"A {kind.name} by {brand}, from {own.name.lower()}. {attributes[2].capitalize()}.",
    )


def _options(rng: Random, department: Department) -> tuple[tuple[str, tuple[str, ...]], ...]:
    groups = []
    for name, values in department.options:
        kept = set(rng.sample(values, min(4, len(values) - 1)))
        groups.append((name, tuple(value for value in values if value in kept)))
    return tuple(groups)


def _asin(number: int, offset: int) -> str:
    left, digits = (number * _STRIDE + offset) % _IDS, ""
    for _ in range(8):
        left, digit = divmod(left, 36)
        digits = _ID_DIGITS[digit] + digits
    return f"B0{digits}"


def random_goal(catalogue: Catalogue, wish: Wish, seed: int) -> Goal:
    """Draw what somebody wants of the catalogue."""
    rng = Random(seed)
    product = rng.choice(catalogue.products)
    attributes = tuple(sorted(rng.sample(product.attributes, min(wish.attributes, len(product.attributes)))))
    groups = sorted(rng.sample(range(len(product.options)), min(wish.options, len(product.options))))
    options = tuple((product.options[at][0], rng.choice(product.options[at][1])) for at in groups)
    upper = float(_UPPER_STEP * (int(product.price) // _UPPER_STEP + rng.randint(1, 3)))
    first = next(
        other
        for other in catalogue.by_query[product.query]
        if other.price <= upper and _offers(other, attributes, options)
    )
    values = tuple(value for _, value in options)
    if wish.brief:
        text = brief_goal(product.query, attributes, values, upper)
    else:
        text = _sentence(product.query, attributes, options, upper=upper)
    return Goal(first.asin, text, attributes, values, upper)


def _offers(product: Product, attributes: Sequence[str], options: Sequence[tuple[str, str]]) -> bool:
    return all(attribute in product.attributes for attribute in attributes) and all(
        value in values for wanted, value in options for name, values in product.options if name == wanted
    )


def _sentence(
    kind: str, attributes: Sequence[str], options: Sequence[tuple[str, str]], *, upper: float
) -> str:
    """Return the goal in words; which opening it has follows from its content."""
    wanted = f" that is {' and '.join(attributes)}" if attributes else ""
    wanted += "".join(f", {name}: {value}" for name, value in options)
    text = f"{wanted}, and price lower than {upper:.2f} dollars"
    opening = _FIRST_WORDS[derive_seed("webshop opening", kind, text) % len(_FIRST_WORDS)]
    return opening.format(kind=kind) + text


def short(text: str) -> str:
    """Return the first six letters of the first word, as the brief style shows it."""
    return text.split(maxsplit=1)[0][:6] if text.strip() else ""


def brief_goal(kind: str, attributes: Sequence[str], options: Sequence[str], upper: float) -> str:
    """Return the goal of the brief style: its words, each cut short, in columns of seven."""
    words = [short(kind), *map(short, attributes), *map(short, options), f"<{upper:.0f}"]
    return " ".join(f"{word:6}" for word in words).rstrip()
