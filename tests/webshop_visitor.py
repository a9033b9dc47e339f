"""A customer of the web site: does over HTTP, by what pages show, what an action of the text mode says.

`Visitor.act` follows the link or presses the button whose text an action names. Knows HTML and no shop. Called by
`benchmarks.webshop` and by tests.
"""

from __future__ import annotations

from html.parser import HTMLParser
from http.client import HTTPConnection
from urllib.parse import urlencode

__all__ = ["Visitor"]


class _Links(HTMLParser):
    """Collects links by their text, and forms by the text of their button."""

    def __init__(self) -> None:
        super().__init__()
        self.links: dict[str, str] = {}
        self.forms: dict[str, tuple[str, str, str]] = {}
        """Method, address and name of the field, by the button's text."""
        self._target = self._method = self._action = self._field = self._text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "a":
            self._target, self._text = given["href"], ""
        elif tag == "form":
            self._method, self._action, self._field = given["method"], given["action"], ""
        elif tag == "input":
            self._field = given["name"]
        elif tag == "button":
            self._text = ""

    def handle_data(self, data: str) -> None:
        self._text += data

    def handle_endtag(self, tag: str) -> None:
        if tag == "a":
            self.links.setdefault(self._text, self._target)
        elif tag == "button":
            self.forms[self._text.lower()] = (self._method, self._action, self._field)


class Visitor:
    """One browser window on a port of this machine."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.html = self._open("GET", "/")

    def act(self, action: str) -> bool:
        """Carry out `search[words]` or `click[name]`; return whether the page had what that needs."""
        verb, _, rest = action.partition("[")
        words, page = rest[:-1], _Links()
        page.feed(self.html)
        if verb == "search":
            if "search" not in page.forms:
                return False
            method, target, field = page.forms["search"]
            self.html = self._open(method.upper(), f"{target}?{urlencode({field: words})}")
        elif words in page.forms:
            method, target, _ = page.forms[words]
            self.html = self._open(method.upper(), target)
        elif words in page.links:
            self.html = self._open("GET", page.links[words])
        else:
            return False
        return True

    def _open(self, method: str, target: str) -> str:
        connection = HTTPConnection("127.0.0.1", self._port, timeout=30)
        try:
            connection.request(method, target)
            answer = connection.getresponse()
            content = answer.read().decode()
        finally:
            connection.close()
        if answer.status != 200:
            raise RuntimeError(f"{method} {target} gave {answer.status}: {content[:200]!r}")
        return content
