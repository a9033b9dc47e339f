"""What sites are made of: a request, a page, and the few pieces of HTML that they share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from html import escape
from typing import Any
from urllib.parse import quote, urlencode

__all__ = [
    "Attachment",
    "Page",
    "Redirect",
    "Request",
    "State",
    "button",
    "field_of",
    "form",
    "link",
    "page",
    "pick",
    "table",
    "upload",
]

State = dict[str, Any]
"""All of a site, as JSON: what a task draws, and what its grade looks at."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request to a site."""

    method: str
    path: tuple[str, ...]
    """The address without its slashes; empty for the first page."""
    query: Mapping[str, str] = field(default_factory=dict)
    form: Mapping[str, list[str]] = field(default_factory=dict)
    """The fields of a form that was sent; of a file, its name and its content."""

    def text(self, name: str) -> str:
        """Return a field's first value, stripped; empty where there is none."""
        return (self.form.get(name) or [""])[0].strip()


@dataclass(frozen=True, slots=True)
class Page:
    """An HTML page."""

    html: str
    status: int = 200


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file to download."""

    name: str
    content: str


@dataclass(frozen=True, slots=True)
class Redirect:
    """Go on at another address of the site."""

    to: str


def page(
    title: str, *parts: str, menu: Iterable[tuple[str, str]] = (), note: str = "", status: int = 200
) -> Page:
    """Return a whole page: menu as (text, address), heading, an optional note, and the parts."""
    links = " | ".join(link(text, to) for text, to in menu)
    nav = f"<nav>{links}</nav>" if links else ""
    said = f'<p role="alert">{escape(note)}</p>' if note else ""
    head = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(title)}</title>'
    style = "<style>body{font:15px sans-serif;margin:1em}td,th{padding:2px 8px;text-align:left}label{display:block}</style>"
    return Page(
        f"{head}{style}<body>{nav}<h1>{escape(title)}</h1>{said}{''.join(parts)}</body></html>", status
    )


def link(text: str, to: str, **query: str) -> str:
    """Return a link."""
    asked = "?" + urlencode(query) if query else ""
    return f'<a href="{escape(quote(to, safe="/?=&"), quote=True)}{escape(asked, quote=True)}">{escape(text)}</a>'


def form(to: str, *parts: str, send: str = "", method: str = "post", confirm: str = "") -> str:
    """Return a form. `confirm` is asked in a dialog before it is sent."""
    ask = f" onsubmit=\"return confirm('{escape(confirm, quote=True)}')\"" if confirm else ""
    last = button(send) if send else ""
    address = escape(quote(to, safe="/?=&"), quote=True)
    return f'<form method="{method}" action="{address}"{ask}>{"".join(parts)}{last}</form>'


def button(text: str, name: str = "", value: str = "") -> str:
    """Return a button that sends its form."""
    named = f' name="{escape(name)}" value="{escape(value, quote=True)}"' if name else ""
    return f"<button{named}>{escape(text)}</button>"


def field_of(label: str, name: str, value: str = "", kind: str = "text", *, checked: bool = False) -> str:
    """Return a labelled field: an `<input>` of some type, or a `textarea`."""
    if kind == "textarea":
        return f'<label>{escape(label)} <textarea name="{name}" rows="4" cols="50">{escape(value)}</textarea></label>'
    mark = " checked" if checked else ""
    shown = escape(value, quote=True)
    made = f'<input type="{kind}" name="{name}" value="{shown}" autocomplete="off"{mark}>'
    return (
        f"<label>{made} {escape(label)}</label>"
        if kind in ("checkbox", "radio")
        else f"<label>{escape(label)} {made}</label>"
    )


def pick(label: str, name: str, options: Iterable[str], chosen: str = "") -> str:
    """Return a labelled list to select from."""
    made = "".join(
        f"<option{' selected' if each == chosen else ''}>{escape(each)}</option>" for each in options
    )
    return f'<label>{escape(label)} <select name="{name}">{made}</select></label>'


def table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a table; cells are HTML."""
    top = "".join(f"<th>{head}</th>" for head in heads)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"


def upload(to: str, label: str, send: str, *parts: str) -> str:
    """Return a form that sends a file as its field `file`."""
    field = f'<label>{escape(label)} <input type="file" name="file"></label>'
    address = escape(quote(to, safe="/?=&"), quote=True)
    kind = 'method="post" enctype="multipart/form-data"'
    return f'<form {kind} action="{address}">{"".join(parts)}{field}{button(send)}</form>'
