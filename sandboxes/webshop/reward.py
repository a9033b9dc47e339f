"""What a purchase is worth, as in WebShop (Yao et al. 2022, section 3.2): by type, attributes, options and price.

    r = r_type · (n_attributes + n_options + [price ≤ upper]) / (|attributes| + |options| + 1)

Two departures. Nouns of a title are found by a rule of words instead of a tagger (`nouns`), which only `r_type` uses. An
empty list of wanted attributes is no error. Called when something is bought, and by the oracle. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from rapidfuzz import fuzz
from rapidfuzz.utils import default_process

from sandboxes.webshop.product import Goal, Product
from sandboxes.webshop.words import COLORS, NO_NOUNS

__all__ = ["Score", "normal_color", "nouns", "score", "similar"]

SIMILAR = 85
"""Texts whose similarity in percent is above are taken as equal."""

_LATIN = dict.fromkeys(range(128, 256))
_WORD = re.compile(r"[^\W\d_](?:[\w.&']*\w)?")


@dataclass(frozen=True, slots=True)
class Score:
    """A purchase's worth and what it is made of."""

    reward: float
    type: float
    """1, 0.5, 0.1 or 0."""
    attributes: int
    options: int
    price: bool


def normal_color(value: str) -> str:
    """Return the first colour of the list that is part of `value`, or `value` itself."""
    return next((color for color in COLORS if color in value), value)


@lru_cache(maxsize=1 << 14)
def similar(one: str, other: str) -> bool:
    """Return whether the sets of words of two texts are alike, as thefuzz's `token_set_ratio` above 85 says."""
    texts = (default_process(text.translate(_LATIN)) for text in (one, other))
    return round(fuzz.token_set_ratio(*texts)) > SIMILAR


@lru_cache(maxsize=1 << 12)
def nouns(title: str) -> tuple[str, ...]:
    """Return the words of a title that count as nouns, in order and with repetitions.

    A word begins with a letter and ends where a hyphen or a space is. Function words, frequent adjectives and words of
    five letters or more that end in -ed are none.
    """
    words = (word.lower() for word in _WORD.findall(title))
    return tuple(
        word for word in words if word not in NO_NOUNS and not (len(word) > 4 and word.endswith("ed"))
    )


def type_reward(bought: Product, target: Product) -> float:
    """Return how much the kind of product is the wanted one."""
    wanted = nouns(target.name)
    title = len(set(wanted) & set(nouns(bought.name))) / len(wanted) if wanted else 0.2
    if title == 0.0:
        return 0.0
    if title < 0.1:
        return 0.1
    shared = _categories(bought) & _categories(target)
    return 1.0 if bought.query == target.query or len(shared) >= 2 or title > 0.2 else 0.5


def _categories(product: Product) -> set[str]:
    return {part.strip() for part in product.category.split("›")}


def _has(product: Product, attribute: str) -> bool:
    if any(similar(own, attribute) for own in product.attributes):
        return True
    texts = (product.name, " ".join(product.features), product.description)
    return any(attribute in text.lower() for text in texts)


def score(bought: Product, chosen: Iterable[str], goal: Goal, target: Product) -> Score:
    """Return what buying `bought` with the chosen option values is worth to who wants `goal`, described by `target`."""
    colors = [normal_color(value) for value in chosen]
    kind = type_reward(bought, target)
    attributes = sum(_has(bought, attribute) for attribute in goal.attributes)
    wanted = [normal_color(option) for option in goal.options]
    options = sum(any(similar(color, option) for color in colors) for option in wanted)
    price = bought.price <= goal.price_upper
    most = len(goal.attributes) + len(goal.options) + 1
    return Score(kind * (attributes + options + price) / most, kind, attributes, options, price)
