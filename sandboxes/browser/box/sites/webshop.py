"""A web shop: a search, pages of results, products with options, and one purchase.

The catalogue and the weights of its search come along as data, so nothing of the host's libraries is needed here. The search
adds the weights up in single precision and in the order of the words, as the host's index does, and ranks as that ranks.
"""

from __future__ import annotations

import re
from array import array
from base64 import b64decode
from collections.abc import Mapping
from html import escape
from typing import Any

from sandboxes.browser.box.web import Page, Redirect, Request, State, field_of, form, link, page

__all__ = ["ShopSite"]

_WORD = re.compile(r"[^\W_]+")
_OPTION = "option."
_DETAILS = ("description", "features")
Query = dict[str, str]


class ShopSite:
    """The shop of one catalogue; `answer` is the site. The state has the instruction's words and what was bought."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self._products: list[dict[str, Any]] = data["products"]
        self._places = {product["asin"]: place for place, product in enumerate(self._products)}
        self._weights: dict[str, list[str]] = data["weights"]
        """By word: in base64, places of products, and a weight for each."""
        self._per_page, self._most_hits = int(data["per_page"]), int(data["most_hits"])
        self._most_chars, self._most_words = int(data["most_chars"]), int(data["most_words"])
        self._found: dict[str, list[int]] = {}

    def answer(self, state: State, request: Request) -> Page | Redirect:
        """Answer one request. After the purchase every address shows what was bought."""
        if state["bought"] is None and request.method == "POST":
            state["bought"] = self._bought(request)
        if state["bought"] is not None:
            product = self._products[self._places[state["bought"]["asin"]]]
            return _page(
                state, "bought", f"<p>Thank you for shopping. You bought {escape(product['name'])}.</p>"
            )
        query = _asked(request.query.get("q", ""), self._most_chars)
        match request.path:
            case () | ("search",) if not query:
                search = form("/search", field_of("Search", "q", kind="search"), send="Search", method="get")
                return _page(state, "search", search)
            case ("search",):
                return self._results(state, query, _number(request.query))
            case ("item", asin) if asin in self._places:
                return self._item(state, self._products[self._places[asin]], _kept(request.query, query))
            case ("item", asin, ("description" | "features") as part) if asin in self._places:
                return self._details(
                    state, self._products[self._places[asin]], part, _kept(request.query, query)
                )
        return page("Not found", link("back to search", "/"), status=404)

    def _bought(self, request: Request) -> dict[str, Any] | None:
        """Return a purchase as the host's `Visit`, or None for none; whether there is such a visit the host checks."""
        match request.path:
            case ("buy", asin) if asin in self._places:
                fields = {name: values[0] for name, values in request.form.items()}
                chosen = [
                    [name.removeprefix(_OPTION), value]
                    for name, value in fields.items()
                    if name.startswith(_OPTION)
                ]
                query = _asked(fields.get("q", ""), self._most_chars)
                return {"query": query, "number": _number(fields), "asin": asin, "chosen": chosen}
        return None

    def _results(self, state: State, query: str, number: int) -> Page:
        hits = self._hits(query)
        pages = max(1, -(-len(hits) // self._per_page))
        shown = hits[(number - 1) * self._per_page : number * self._per_page]
        rows = []
        for product in (self._products[place] for place in shown):
            to = link(product["asin"].lower(), f"/item/{product['asin']}", q=query, page=str(number))
            rows.append(f"<li>{to} {escape(product['name'])} <b>${product['price']:.2f}</b></li>")
        turned = [("next >", number + 1)] * (number < pages) + [("< prev", number - 1)] * (number > 1)
        links = [link(text, "/search", q=query, page=str(to)) for text, to in turned]
        nav = f"<nav>{' '.join([*links, link('back to search', '/')])}</nav>"
        return _page(state, "results", f"<p>Results for “{escape(query)}”</p><ol>{''.join(rows)}</ol>{nav}")

    def _item(self, state: State, product: dict[str, Any], kept: Query) -> Page:
        body = [f"<h2>{escape(product['name'])}</h2><p>Price: ${product['price']:.2f}</p>"]
        to = f"/item/{product['asin']}"
        for name, values in product["options"]:
            marks = [
                f"<b>{escape(value)}</b>"
                if kept.get(_OPTION + name) == value
                else link(value, to, **self._choosing(product, kept, name, value))
                for value in values
            ]
            body.append(f"<p>{escape(name)}: {' '.join(marks)}</p>")
        hidden = "".join(
            f'<input type="hidden" name="{escape(name, quote=True)}" value="{escape(value, quote=True)}">'
            for name, value in kept.items()
        )
        links = [link(part, f"{to}/{part}", **kept) for part in _DETAILS]
        before = link("< prev", "/search", q=kept["q"], page=kept["page"])
        nav = f"<nav>{' '.join([*links, before, link('back to search', '/')])}</nav>"
        return _page(state, "item", *body, form(f"/buy/{product['asin']}", hidden, send="Buy Now"), nav)

    def _choosing(self, product: dict[str, Any], kept: Query, name: str, value: str) -> Query:
        """Return the fields of an address at which a value is chosen, in the product's order of groups."""
        chosen = {**kept, _OPTION + name: value}
        names = ["q", "page", *(_OPTION + group for group, _ in product["options"])]
        return {each: chosen[each] for each in names if each in chosen}

    def _details(self, state: State, product: dict[str, Any], part: str, kept: Query) -> Page:
        texts = [product["description"]] if part == "description" else product["features"]
        told = "".join(f"<li>{escape(text)}</li>" for text in texts)
        before = link("< prev", f"/item/{product['asin']}", **kept)
        nav = f"<nav>{before} {link('back to search', '/')}</nav>"
        return _page(state, part, f"<ul>{told}</ul>", nav)

    def _hits(self, query: str) -> list[int]:
        """Return the places of the best products for a query, best first."""
        if query not in self._found:
            words = [word for word in dict.fromkeys(_WORD.findall(query)) if word in self._weights]
            scores = array("f", bytes(4 * len(self._products)))
            for word in words[: self._most_words]:
                places, weights = (b64decode(packed) for packed in self._weights[word])
                for place, weight in zip(array("I", places), array("f", weights), strict=True):
                    scores[place] += weight
            known = [place for place, score in enumerate(scores) if score]
            self._found[query] = sorted(known, key=lambda place: -scores[place])[: self._most_hits]
        return self._found[query]


def _page(state: State, title: str, *parts: str) -> Page:
    return page(f"Shop: {title}", f"<p>Instruction: {escape(state['text'])}</p>", *parts)


def _asked(words: str, most: int) -> str:
    return " ".join(words.lower().split())[:most].rstrip()


def _number(fields: Mapping[str, str]) -> int:
    """Return the page of results that an address names."""
    text = fields.get("page", "1")
    return int(text) if re.fullmatch(r"[1-9][0-9]{0,3}", text) else 1


def _kept(fields: Mapping[str, str], query: str) -> Query:
    """Return what an item's address keeps: the search that led there, and the options chosen."""
    chosen = {name: value for name, value in fields.items() if name.startswith(_OPTION)}
    return {"q": query, "page": str(_number(fields)), **chosen}
