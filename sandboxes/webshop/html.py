"""The shop as a web site: the address of a place and back, and its page as HTML. Pure; used by the server.

An address holds all of a visit: `/`, `/search?q=red+lamp&page=2`, `/item/B01…?q=lamp&page=2&option.color=red`, the same with
`/description` or `/features`. Buying is a form that posts the item's own fields to `/buy/B01…`.
"""

from __future__ import annotations

from html import escape
from typing import cast
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from rock_env.errors import InvalidArgument
from sandboxes.webshop.shop import BACK, BUY, DETAILS, NEXT, PREVIOUS, Page, Shop, Visit, asked

__all__ = ["address", "html_page", "visit_at"]

MOST_FIELDS = 64
_OPTION = "option."
_STYLE = "body{font-family:sans-serif;max-width:60em;margin:2em auto}li{margin:.5em}nav a{margin-right:1em}"


def address(visit: Visit) -> str:
    """Return the path and query of a place; that of a purchase is where its form is posted."""
    if visit.page == "search":
        return "/"
    fields = [("q", visit.query), ("page", str(visit.number))]
    if visit.page == "results":
        return f"/search?{urlencode(fields)}"
    fields += [(_OPTION + name, value) for name, value in visit.chosen]
    item = quote(visit.asin, safe="")
    if visit.page == "bought":
        return f"/buy/{item}?{urlencode(fields)}"
    detail = "" if visit.page == "item" else f"/{visit.page}"
    return f"/item/{item}{detail}?{urlencode(fields)}"


def visit_at(shop: Shop, target: str) -> Visit:
    """Return the place that an address names. Raise `InvalidArgument` if there is none such in the shop."""
    try:
        parts = urlsplit(target)
        fields = parse_qsl(parts.query, max_num_fields=MOST_FIELDS, errors="strict")
        visit = _visit([part for part in parts.path.split("/") if part], fields)
    except ValueError as error:
        raise InvalidArgument(
            f"no page at {target[:80]!r}: {str(error)[:80]}. Follow a link of the shop."
        ) from error
    shop.check(visit)
    return visit


def _visit(path: list[str], fields: list[tuple[str, str]]) -> Visit:
    if not path:
        return Visit()
    named = dict(fields)
    number = int(named.get("page") or 1)
    query = asked(named.get("q", ""))
    if path == ["search"]:
        return Visit("results", query, number) if query else Visit()
    kind, asin, *more = path
    page = {"item": "item", "buy": "bought"}.get(kind) if not more else None
    if kind == "item" and len(more) == 1 and more[0] in DETAILS:
        page = more[0]
    if page is None:
        raise ValueError("unknown path")
    chosen = tuple((name[len(_OPTION) :], value) for name, value in fields if name.startswith(_OPTION))
    return Visit(cast("Page", page), query, number, asin, chosen)


def _link(visit: Visit, text: str) -> str:
    return f'<a href="{escape(address(visit))}">{escape(text)}</a>'


def html_page(shop: Shop, visit: Visit, text: str) -> str:
    """Return the page of a place; `text` is the instruction, which stands on top of each."""
    body = [f'<p id="instruction">Instruction: {escape(text)}</p>']
    links = shop.links(visit)
    match visit.page:
        case "search":
            body.append(
                '<form action="/search" method="get"><input type="search" name="q" maxlength="200" '
                'aria-label="Search"><button>Search</button></form>'
            )
            body += [_link(to, name) for name, to in links.items()]
        case "results":
            body.append(f"<h1>Results for “{escape(visit.query)}”</h1>")
            rows = (
                f"<li>{_link(links[product.asin.lower()], product.asin.lower())} {escape(product.name)} "
                f"<b>${product.price:.2f}</b></li>"
                for product in shop.shown(visit)
            )
            body.append(f"<ol>{''.join(rows)}</ol>")
        case "item":
            body += _item(shop, visit)
        case "description" | "features":
            product = shop.catalogue.product(visit.asin)
            texts = [product.description] if visit.page == "description" else product.features
            body.append(f"<ul>{''.join(f'<li>{escape(one)}</li>' for one in texts)}</ul>")
        case "bought":
            name = shop.catalogue.product(visit.asin).name
            body.append(f"<p>Thank you for shopping. You bought {escape(name)}.</p>")
    buttons = [name for name in (*DETAILS, NEXT, PREVIOUS, BACK) if visit.page != "search" and name in links]
    body.append(f"<nav>{''.join(_link(links[name], name) for name in buttons)}</nav>")
    title = f"<title>Shop: {visit.page}</title>"
    head = f'<!doctype html><html lang="en"><head><meta charset="utf-8">{title}<style>{_STYLE}</style></head>'
    return f"{head}<body>{''.join(body)}</body></html>"


def _item(shop: Shop, visit: Visit) -> list[str]:
    product = shop.catalogue.product(visit.asin)
    body = [f"<h1>{escape(product.name)}</h1>", f"<p>Price: ${product.price:.2f}</p>"]
    chosen = set(visit.chosen)
    for name, values in product.options:
        marks = (
            f"<b>{escape(value)}</b>"
            if (name, value) in chosen
            else _link(shop.choose(visit, name, value), value)
            for value in values
        )
        body.append(f"<p>{escape(name)}: {' '.join(marks)}</p>")
    buy = escape(address(visit._replace(page="bought")))
    body.append(f'<form action="{buy}" method="post"><button>{BUY.title()}</button></form>')
    return body
