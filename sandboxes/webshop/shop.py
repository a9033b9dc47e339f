"""The shop: where a customer may stand, and where each link leads. Text pages and the web site are two looks of it.

A `Visit` is a place with all that a page there depends on, so it is the whole state beside the goal. `Shop.links` says
what can be clicked there by name. Holds no episode.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Literal, NamedTuple

from rock_env.errors import InvalidArgument
from sandboxes.webshop.catalogue import Catalogue
from sandboxes.webshop.product import Goal, Product
from sandboxes.webshop.reward import Score, score
from sandboxes.webshop.search import MOST_QUERY_CHARS

__all__ = ["BACK", "BUY", "DETAILS", "NEXT", "PREVIOUS", "Page", "Shop", "Visit", "asked"]

Page = Literal["search", "results", "item", "description", "features", "bought"]
BACK, NEXT, PREVIOUS, BUY = "back to search", "next >", "< prev", "buy now"
DETAILS: tuple[Page, ...] = ("description", "features")
_CACHED = 512
"""Searches and pages kept: members of a group often do the same, and a page is drawn, then acted on."""


class Visit(NamedTuple):
    """Where a customer stands."""

    page: Page = "search"
    query: str = ""
    number: int = 1
    """Of the page of results, from 1."""
    asin: str = ""
    chosen: tuple[tuple[str, str], ...] = ()
    """Group and value of the options chosen, in the product's order of groups."""


def asked(words: str) -> str:
    """Return what a search for some words looks for: lower case, single spaces, as much of it as is read."""
    return " ".join(words.lower().split())[:MOST_QUERY_CHARS].rstrip()


class Shop:
    """A catalogue with its search, `per_page` products on a page of results."""

    def __init__(self, catalogue: Catalogue, *, per_page: int, suggestions: int) -> None:
        self.catalogue = catalogue
        self.per_page = per_page
        self.suggestions = tuple(sorted(catalogue.by_query))[:suggestions]
        """Searches that the search page offers, so that one who cannot write can shop."""
        self._hits = lru_cache(maxsize=_CACHED)(self._searched)
        self.links = lru_cache(maxsize=_CACHED)(self._links)

    def _searched(self, query: str) -> tuple[int, ...]:
        return self.catalogue.index.hits(query)

    def found(self, visit: Visit) -> tuple[Product, ...]:
        """Return all products that the visit's search finds, best first."""
        return tuple(self.catalogue.products[place] for place in self._hits(visit.query))

    def shown(self, visit: Visit) -> tuple[Product, ...]:
        """Return the products on a page of results."""
        start = (visit.number - 1) * self.per_page
        places = self._hits(visit.query)[start : start + self.per_page]
        return tuple(self.catalogue.products[place] for place in places)

    def pages(self, visit: Visit) -> int:
        """Return how many pages the results of the visit's search have, at least 1."""
        return max(1, -(-len(self._hits(visit.query)) // self.per_page))

    def search(self, visit: Visit, query: str) -> Visit | None:
        """Return where a search leads, or None: there is no search box, or nothing in it."""
        query = asked(query)
        return Visit("results", query) if visit.page == "search" and query else None

    def _links(self, visit: Visit) -> Mapping[str, Visit]:
        """Return where each name that can be clicked leads, in the order of the page.

        Where two groups of options have the same value, its name chooses in the first that lacks it.
        """
        links: dict[str, Visit] = {}
        match visit.page:
            case "search":
                links = {name: Visit("results", name) for name in self.suggestions}
            case "results":
                links = self._results(visit)
            case "item":
                links = self._item(visit)
            case "description" | "features":
                links = {PREVIOUS: visit._replace(page="item"), BACK: Visit()}
            case _:
                pass
        return MappingProxyType(links)

    def _results(self, visit: Visit) -> dict[str, Visit]:
        links = {
            product.asin.lower(): visit._replace(page="item", asin=product.asin)
            for product in self.shown(visit)
        }
        if visit.number < self.pages(visit):
            links[NEXT] = visit._replace(number=visit.number + 1)
        if visit.number > 1:
            links[PREVIOUS] = visit._replace(number=visit.number - 1)
        return links | {BACK: Visit()}

    def _item(self, visit: Visit) -> dict[str, Visit]:
        links: dict[str, Visit] = {}
        for name, value in self.values(visit):
            if (name, value) not in visit.chosen and value not in links:
                links[value] = self.choose(visit, name, value)
        for page in DETAILS:
            links[page] = visit._replace(page=page)
        return links | {
            BUY: visit._replace(page="bought"),
            PREVIOUS: visit._replace(page="results", asin="", chosen=()),
            BACK: Visit(),
        }

    def values(self, visit: Visit) -> list[tuple[str, str]]:
        """Return group and value of every option of the visit's product, in order."""
        product = self.catalogue.product(visit.asin)
        return [(name, value) for name, values in product.options for value in values]

    def choose(self, visit: Visit, name: str, value: str) -> Visit:
        """Return the visit with `value` chosen in its group, instead of what was."""
        chosen = {**dict(visit.chosen), name: value}
        product = self.catalogue.product(visit.asin)
        order = tuple((group, chosen[group]) for group, _ in product.options if group in chosen)
        return visit._replace(chosen=order)

    def score(self, visit: Visit, goal: Goal) -> Score:
        """Return what buying the visit's product as chosen is worth."""
        product, target = self.catalogue.product(visit.asin), self.catalogue.product(goal.asin)
        return score(product, [value for _, value in visit.chosen], goal, target)

    def check(self, visit: Visit) -> None:
        """Raise `InvalidArgument` unless there is such a place in this shop."""
        at_item = visit.page in ("item", "bought", *DETAILS)
        options = set(self.values(visit)) if at_item else set()
        groups = [name for name, _ in visit.chosen]
        fits = (
            (visit.page != "search" or visit == Visit())
            and (visit.page != "results" or not visit.asin)
            and (visit.page == "search" or bool(visit.query))
            and len(visit.query) <= MOST_QUERY_CHARS
            and 1 <= visit.number <= (1 if visit.page == "search" else self.pages(visit))
            and set(visit.chosen) <= options
            and len(set(groups)) == len(groups)
        )
        if not fits:
            raise InvalidArgument(
                f"no such place in this webshop: got page {visit.page!r} {visit.number} of a search of "
                f"{len(visit.query)} characters. Pass a snapshot that was made with the same arguments."
            )
