"""What the shop knows: products, and what a customer wants. Values."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from rock_env.errors import InvalidArgument

__all__ = ["Goal", "Product", "goal_of"]

MOST_WANTED = 64
"""Attributes or options of a goal; the published instructions have at most about ten."""


@dataclass(frozen=True, slots=True)
class Product:
    """One product. Texts are as shown; attributes are lower case and not shown as such."""

    asin: str
    name: str
    """Its title."""
    query: str
    """The search that the product was found by when the catalogue was collected; a generated one's kind."""
    category: str
    """The path of categories, joined by ` › `."""
    price: float
    attributes: tuple[str, ...]
    options: tuple[tuple[str, tuple[str, ...]], ...]
    """Named groups of values, of each of which one is chosen."""
    features: tuple[str, ...]
    description: str

    def text(self) -> str:
        """Return what a search looks at."""
        values = (value for _, group in self.options for value in group)
        return " ".join((self.name, self.query, *self.features, self.description, *values))


@dataclass(frozen=True, slots=True)
class Goal:
    """What a customer wants: the product `asin` was described, and any that fits as well is as good."""

    asin: str
    text: str
    attributes: tuple[str, ...]
    options: tuple[str, ...]
    price_upper: float

    def payload(self) -> str:
        """Return canonical JSON, the payload of a task."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))


def goal_of(payload: str) -> Goal:
    """Return the goal of a payload. Raise `InvalidArgument` if it is none."""
    try:
        return _goal(json.loads(payload))
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise InvalidArgument(
            f"not a webshop goal: got {payload[:60]!r}. Pass a task of this environment."
        ) from error


def _goal(values: Any) -> Goal:
    attributes, options = values["attributes"], values["options"]
    if not isinstance(attributes, list) or not isinstance(options, list):
        raise TypeError("attributes and options are lists")
    if max(len(attributes), len(options)) > MOST_WANTED:
        raise ValueError("too many attributes or options")
    upper = values["price_upper"]
    texts = [values["asin"], values["text"], *attributes, *options]
    if not all(isinstance(text, str) for text in texts) or not isinstance(upper, int | float):
        raise TypeError("expected texts and a price")
    return Goal(values["asin"], values["text"], tuple(attributes), tuple(options), float(upper))
