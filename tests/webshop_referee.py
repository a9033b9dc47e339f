"""What a webshop purchase is worth, computed a second time: by other code, from what was done and seen alone.

`Referee.follow` reads the actions and pages of an episode in the full style; `worth` applies WebShop's published formula
with a similarity of its own (a longest common subsequence in plain Python). Nothing of `sandboxes.webshop.reward` is
used; shared are the catalogue and two lists of words. Called by `benchmarks.webshop` and by tests.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from random import Random

from sandboxes.webshop.catalogue import Catalogue
from sandboxes.webshop.product import Product
from sandboxes.webshop.words import COLORS, NO_NOUNS

__all__ = ["Referee", "alike", "random_action", "title_nouns"]


def _common(one: str, other: str) -> int:
    """Return the length of a longest common subsequence."""
    row = [0] * (len(other) + 1)
    for letter in one:
        before = 0
        for at, also in enumerate(other, start=1):
            before, row[at] = row[at], before + 1 if letter == also else max(row[at], row[at - 1])
    return row[-1]


def _ratio(one: str, other: str) -> float:
    return 200.0 * _common(one, other) / (len(one) + len(other)) if one or other else 0.0


@lru_cache(maxsize=1 << 16)
def alike(one: str, other: str) -> int:
    """Return how alike two sets of words are, in whole percent."""
    sets = []
    for text in (one, other):
        plain = "".join(letter for letter in text if not 128 <= ord(letter) < 256)
        sets.append(set("".join(c if c.isalnum() else " " for c in plain.lower()).split()))
    mine, yours = sets
    both = " ".join(sorted(mine & yours))
    left = f"{both} {' '.join(sorted(mine - yours))}".strip()
    right = f"{both} {' '.join(sorted(yours - mine))}".strip()
    if not mine or not yours:
        return 0
    scores = [_ratio(left, right)]
    if both:
        scores += [_ratio(both, left), _ratio(both, right)]
    return round(max(scores))


def title_nouns(title: str) -> list[str]:
    """Return the words of a title that name something."""
    found = []
    for part in re.split(r"[^\w.&']+", title.lower()):
        word = part.strip(".&'_")
        if word[:1].isalpha() and word not in NO_NOUNS and (len(word) < 5 or word[-2:] != "ed"):
            found.append(word)
    return found


def _colored(value: str) -> str:
    for color in sorted(COLORS):
        if value.find(color) >= 0:
            return color
    return value


class Referee:
    """Follows one episode."""

    def __init__(self, catalogue: Catalogue, payload: str) -> None:
        self._goal = json.loads(payload)
        self._products = {product.asin.lower(): product for product in catalogue.products}
        self._product: Product | None = None
        self._page = ""
        self.bought: Fraction | None = None
        """What the purchase is worth; None before it."""

    def follow(self, action: str, page: str) -> None:
        """Take note of an action and the page it led to."""
        clicked = re.fullmatch(r"click\[(.*)\]", action)
        name = clicked[1] if clicked else ""
        if name in self._products and f"[{name}]" in self._page:
            self._product = self._products[name]
        if name == "buy now" and self._product is not None and "[buy now]" in self._page:
            self.bought = self.worth(self._product, re.findall(r"\((.+?)\)", self._options()))
        self._page = page

    def _options(self) -> str:
        """Return the lines of the item page below its price, where chosen options stand in parentheses."""
        return self._page.split("\nPrice: ", 1)[1].split("\n", 1)[1].rsplit("\n", 1)[0]

    def worth(self, product: Product, chosen: Sequence[str]) -> Fraction:
        """Return r_type · (attributes + options + price) / (wanted attributes + wanted options + 1)."""
        goal = self._goal
        points = Fraction(product.price <= goal["price_upper"])
        for attribute in goal["attributes"]:
            similar = max((alike(own, attribute) for own in product.attributes), default=0) > 85
            texts = (product.name, " ".join(product.features), product.description)
            points += similar or any(attribute in text.lower() for text in texts)
        for option in goal["options"]:
            points += max((alike(_colored(value), _colored(option)) for value in chosen), default=0) > 85
        return self._kind(product) * points / (len(goal["attributes"]) + len(goal["options"]) + 1)

    def _kind(self, product: Product) -> Fraction:
        target = self._products[self._goal["asin"].lower()]
        wanted, have = title_nouns(target.name), set(title_nouns(product.name))
        title = Fraction(sum(word in have for word in set(wanted)), len(wanted)) if wanted else Fraction(1, 5)
        categories = [{part.strip() for part in one.category.split("›")} for one in (product, target)]
        fits = (
            product.query == target.query or len(categories[0] & categories[1]) > 1 or title > Fraction(1, 5)
        )
        kind = Fraction(1) if fits else Fraction(1, 2)
        if title < Fraction(1, 10):
            kind = Fraction(1, 10)
        return kind if title else Fraction(0)


def random_action(rng: Random, page: str, payload: str) -> str:
    """Return something a customer without a plan may do on a page of the full style."""
    names = re.findall(r"\[([^\]]+)\]", page.split("\n", 1)[1])
    if "Write search[" in page:
        goal = json.loads(payload)
        words = re.findall(r"\w+", " ".join((goal["text"], *goal["attributes"], *goal["options"])))
        return f"search[{' '.join(rng.choices(words, k=rng.randint(1, 6)))}]"
    if "buy now" in names and rng.random() < 0.25:
        return "click[buy now]"
    return f"click[{rng.choice(names)}]" if rng.random() < 0.98 else "ponder"
