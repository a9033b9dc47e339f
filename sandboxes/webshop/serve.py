"""The web site of one shop and one customer, on the loopback interface: `python -m sandboxes.webshop.serve --text WISH`.

Prints its port as the first line of output, then serves until it is ended. A purchase is printed, too, as a line of
JSON; the first counts, and the shop closes. It is told the instruction's words and never what is right, so nothing that
is read or forged in its sandbox tells or raises the reward. `Site` is the server as an object, for tests.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from rock_env.errors import InvalidArgument
from sandboxes.webshop.html import html_page, visit_at
from sandboxes.webshop.params import WebshopParams, shop_of
from sandboxes.webshop.shop import BUY, Shop, Visit

__all__ = ["Site"]

_IDLE_S = 10.0
_HEADERS = {
    "Content-Type": "text/html; charset=utf-8",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}


class Site(ThreadingHTTPServer):
    """The server. `bought` is the purchase, once there is one."""

    daemon_threads = True

    def __init__(
        self, shop: Shop, text: str, *, port: int = 0, sold: Callable[[Visit], None] | None = None
    ) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.shop, self.text = shop, text
        self.bought: Visit | None = None
        self._sold = sold

    def buy(self, visit: Visit) -> None:
        """Take note of the first purchase."""
        if self.bought is None:
            self.bought = visit
            if self._sold is not None:
                self._sold(visit)


class _Handler(BaseHTTPRequestHandler):
    timeout = _IDLE_S  # of a connection that says nothing
    server: Site

    def do_GET(self) -> None:
        self._answer(buying=False)

    def do_POST(self) -> None:
        self._answer(buying=True)

    def _answer(self, *, buying: bool) -> None:
        self.close_connection = True  # a body, which nothing here needs, is not read
        site = self.server
        if site.bought is not None:
            self._send(200, html_page(site.shop, site.bought, site.text))
            return
        try:
            visit = visit_at(site.shop, self.path)
        except InvalidArgument:
            self._send(404, "<!doctype html><title>Shop</title><p>There is no such page.</p>")
            return
        if buying != (visit.page == "bought"):
            self._send(405, f"<!doctype html><title>Shop</title><p>Press {BUY.title()} to buy.</p>")
            return
        if buying:
            site.buy(visit)
        self._send(200, html_page(site.shop, visit, site.text))

    def _send(self, status: int, page: str) -> None:
        content = page.encode(errors="replace")
        self.send_response(status)
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: standard output is for purchases."""


def main() -> None:
    """Serve until ended."""
    parser = argparse.ArgumentParser(description="Serve a webshop on the loopback interface.")
    parser.add_argument("--text", required=True, help="the instruction")
    parser.add_argument("--params", default="{}", help="arguments of the environment webshop, as JSON")
    parser.add_argument("--port", type=int, default=0)
    asked = parser.parse_args()

    def say(line: str) -> None:
        print(line, flush=True)  # noqa: T201

    shop = shop_of(WebshopParams.model_validate_json(asked.params))
    sold = lambda visit: say(json.dumps(visit._asdict()))  # noqa: E731
    with Site(shop, asked.text, port=asked.port, sold=sold) as site:
        shop.catalogue.index.hits("")  # searches are answered at once
        say(str(site.server_port))
        site.serve_forever()


if __name__ == "__main__":
    main()
