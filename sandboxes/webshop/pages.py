"""How a place in the shop looks as text, in two styles, and what an action's words mean there. Pure.

full: sentences, names in brackets. brief: a page of columns for a policy that is trained from scratch; every link is one
letter or sign, words are cut after six letters.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass

from sandboxes.webshop.generator import short
from sandboxes.webshop.product import Goal, Product
from sandboxes.webshop.shop import BACK, BUY, DETAILS, NEXT, PREVIOUS, Shop, Visit

__all__ = ["LETTERS", "STYLES", "Style", "brief", "full"]

LETTERS = "abcdefghijklmnopqrstuvwxyz"
_SIGNS = {"!": BUY, ">": NEXT, "<": PREVIOUS, "^": BACK}
_VERB = re.compile(r"(search|click)\[", re.IGNORECASE | re.ASCII)
_BRIEF_ATTRIBUTES = 3
MOST_ACTION_CHARS = 2000
"""Of the end of an action; what stands before is not read."""


@dataclass(frozen=True, slots=True)
class Style:
    """One look of the shop."""

    page: Callable[[Shop, Visit, Goal], str]
    step: Callable[[Shop, Visit, str], Visit | None]
    """Where an action leads from a place, or None if it is none there."""


def full(shop: Shop, visit: Visit, goal: Goal) -> str:
    """Return a page in sentences."""
    lines = [f"Instruction: {goal.text}"]
    match visit.page:
        case "search":
            lines.append("This is the search page. Write search[words].")
            if shop.suggestions:
                lines.append("Popular: " + " ".join(f"[{name}]" for name in shop.suggestions))
        case "results":
            count = len(shop.found(visit))
            lines.append(
                f"{count} results for {visit.query!r}, page {visit.number} of {shop.pages(visit)}."
                if count
                else f"No results for {visit.query!r}."
            )
            lines += [f"[{one.asin.lower()}] {one.name} ${one.price:.2f}" for one in shop.shown(visit)]
        case "item":
            product = shop.catalogue.product(visit.asin)
            lines.append(f"{product.name}\nPrice: ${product.price:.2f}")
            chosen = set(visit.chosen)
            for name, values in product.options:
                marks = (f"({value})" if (name, value) in chosen else f"[{value}]" for value in values)
                lines.append(f"{name}: {' '.join(marks)}")
        case "description" | "features":
            lines += _details(shop, visit)
        case "bought":
            lines.append(f"Thank you for shopping. You bought {shop.catalogue.product(visit.asin).name}.")
    buttons = [name for name in (*DETAILS, BUY, NEXT, PREVIOUS, BACK) if name in shop.links(visit)]
    if visit.page != "search" and buttons:
        lines.append(" ".join(f"[{name}]" for name in buttons))
    return "\n".join(lines)


def _details(shop: Shop, visit: Visit) -> list[str]:
    product = shop.catalogue.product(visit.asin)
    return [product.description] if visit.page == "description" else [f"- {one}" for one in product.features]


def _full_step(shop: Shop, visit: Visit, action: str) -> Visit | None:
    """Take the last `search[…]` or `click[…]`, up to the last closing bracket behind it."""
    end = action[-MOST_ACTION_CHARS:]
    verbs = list(_VERB.finditer(end))
    close = end.rfind("]")
    if not verbs or close < verbs[-1].end():
        return None
    words = " ".join(end[verbs[-1].end() : close].lower().split())
    if verbs[-1][1].lower() == "search":
        return shop.search(visit, words)
    return shop.links(visit).get(words)


def _brief_product(product: Product) -> str:
    attributes = "".join(f"{short(one):7}" for one in product.attributes[:_BRIEF_ATTRIBUTES])
    return f"{attributes}{math.ceil(product.price)}"


def brief(shop: Shop, visit: Visit, goal: Goal) -> str:
    """Return a page of columns."""
    lines: list[str] = []
    match visit.page:
        case "search":
            lines = [short(name) for name in shop.suggestions]
        case "results":
            lines = [_brief_product(product) for product in shop.shown(visit)]
        case "item":
            chosen = set(visit.chosen)
            lines = [short(value) + "*" * ((name, value) in chosen) for name, value in shop.values(visit)]
        case "bought":
            return f"{goal.text}\nbought"
        case _:
            return "\n".join([goal.text, *_details(shop, visit), "<^"])
    links = shop.links(visit)
    named = [f"{letter} {line}" for letter, line in zip(LETTERS, lines, strict=False)]
    signs = "".join(sign for sign, name in _SIGNS.items() if name in links)
    return "\n".join([goal.text, *named, signs]).rstrip()


def _brief_step(shop: Shop, visit: Visit, action: str) -> Visit | None:
    """Take an action of one letter or sign, or of more in the full style's words."""
    mark = action[: MOST_ACTION_CHARS + 1].strip()
    if len(mark) != 1:
        return _full_step(shop, visit, action)
    if mark in _SIGNS:
        return shop.links(visit).get(_SIGNS[mark])
    at = LETTERS.find(mark)
    if at < 0:
        return None
    if visit.page == "item":
        values = shop.values(visit)
        chosen = at < len(values) and values[at] not in visit.chosen
        return shop.choose(visit, *values[at]) if chosen else None
    links = [(name, to) for name, to in shop.links(visit).items() if name not in _SIGNS.values()]
    return links[at][1] if visit.page in ("search", "results") and at < len(links) else None


STYLES = {"full": Style(full, _full_step), "brief": Style(brief, _brief_step)}
