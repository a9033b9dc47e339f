"""Serves one site in the box: `python -m sandboxes.browser.box.server FD`, FD being a socket that listens already.

Which one it is, and the folder of its files, comes as a line on standard input: the JSON list [SITE, FOLDER]. A site is a
function of a state and a request. The state is read from `state.json`, which is removed, and lives in this process alone,
whose memory no other program of the box may see. The next line on standard input asks for it: it is written to standard
output as a line of JSON, and nothing is answered any more. The site `static` has none and serves the folder `static`.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Callable, Mapping
from email.parser import BytesParser
from email.policy import HTTP
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import islice
from pathlib import Path
from threading import Lock, Thread
from urllib.parse import parse_qs, parse_qsl, quote, unquote, urlsplit

from sandboxes.browser.box.memory import keep_to_itself
from sandboxes.browser.box.sites import calendar, files, login, mail, signup, stock, webshop, wiki
from sandboxes.browser.box.web import Attachment, Page, Redirect, Request, State, page

__all__ = ["MOST_STATE", "SITES", "Handler", "Served"]

Site = Callable[[State, Request], Page | Redirect | Attachment]
_NONE: Mapping[str, str] = {}
SITES: dict[str, Site] = {
    "calendar": calendar.answer,
    "files": files.answer,
    "login": login.answer,
    "mail": mail.answer,
    "signup": signup.answer,
    "stock": stock.answer,
    "wiki": wiki.answer,
}
MOST_STATE = 800_000
_MOST_BODY = 1 << 20
_MOST_FIELDS = 500
_IDLE_S = 15.0
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript",
    ".css": "text/css",
    ".png": "image/png",
}


class Served:
    """A site and its state; one request at a time."""

    def __init__(self, site: Site, state: State) -> None:
        self._site, self._state = site, state
        self._lock = Lock()
        self._ended = False

    def answer(self, request: Request) -> Page | Redirect | Attachment:
        """Answer a request. Only a POST may change the state."""
        with self._lock:
            return page("Closed", status=503) if self._ended else self._site(self._state, request)

    def end(self) -> str:
        """Close the site for good and return its last state as JSON; `null` for more than `MOST_STATE` characters."""
        with self._lock:
            self._ended = True
            left = json.dumps(self._state)
        return left if len(left) <= MOST_STATE else "null"


class Handler(BaseHTTPRequestHandler):
    """Reads a request within bounds and writes the site's answer."""

    protocol_version = "HTTP/1.1"
    timeout = _IDLE_S
    wbufsize = -1
    """A reply leaves in one piece: the second of two would wait until the browser acknowledged the first."""
    served: Served | None = None
    folder = Path("static")

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        if self.served is None:
            self._static(unquote(parts.path))
            return
        self._send(self.served.answer(Request("GET", _path(parts.path), dict(parse_qsl(parts.query)))))

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        if self.served is None or not 0 <= length <= _MOST_BODY:
            self.close_connection = True
            self._send(page("Not accepted", status=413))
            return
        body = self.rfile.read(length)
        parts = urlsplit(self.path)
        kind = str(self.headers.get("Content-Type") or "")
        if kind.startswith("multipart/form-data"):
            fields = _parts(kind, body)
        else:
            text = body.decode("utf-8", errors="replace")
            fields = parse_qs(text, keep_blank_values=True, max_num_fields=_MOST_FIELDS)
        self._send(
            self.served.answer(Request("POST", _path(parts.path), dict(parse_qsl(parts.query)), fields))
        )

    def _static(self, path: str) -> None:
        root = self.folder.resolve()
        found = (root / path.lstrip("/")).resolve()
        if not found.is_relative_to(root) or not found.is_file():
            self._send(page("Not found", status=404))
            return
        self._write(200, found.read_bytes(), _TYPES.get(found.suffix, "application/octet-stream"))

    def _send(self, reply: Page | Redirect | Attachment) -> None:
        if isinstance(reply, Redirect):
            self._write(303, b"", "text/html; charset=utf-8", {"Location": reply.to})
        elif isinstance(reply, Attachment):
            told = f"attachment; filename*=UTF-8''{quote(reply.name, safe='')}"
            self._write(
                200, reply.content.encode(), "application/octet-stream", {"Content-Disposition": told}
            )
        else:
            self._write(reply.status, reply.html.encode(errors="replace"), "text/html; charset=utf-8")

    def _write(self, status: int, content: bytes, kind: str, more: Mapping[str, str] = _NONE) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "no-store")
        for name, value in more.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: nobody reads it."""


def _parts(kind: str, body: bytes) -> dict[str, list[str]]:
    """Return the fields of a form that may have files; of a file that was chosen its name and content."""
    sent = BytesParser(policy=HTTP).parsebytes(b"Content-Type: " + kind.encode() + b"\r\n\r\n" + body)
    fields: dict[str, list[str]] = {}
    for part in islice(sent.iter_parts() if sent.is_multipart() else (), _MOST_FIELDS):
        name, content = part.get_param("name", header="content-disposition"), part.get_payload(decode=True)
        text = content.decode("utf-8", errors="replace") if isinstance(content, bytes) else ""
        file = part.get_filename()
        fields[str(name)] = [text] if file is None else [file, text]
    return fields


def _path(text: str) -> tuple[str, ...]:
    return tuple(unquote(part) for part in text.split("/") if part)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, listening: socket.socket) -> None:
        super().__init__(("127.0.0.1", 0), Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listening

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: a browser leaves connections as it likes."""


def main() -> None:
    """Serve until ended."""
    descriptor = int(sys.argv[1])
    asked = sys.stdin.readline()
    if not asked:  # the driver ended
        return
    name, folder = json.loads(asked)
    keep_to_itself()
    os.chdir(folder)
    served = None if name == "static" else _opened(name)
    Handler.served = served
    with _Server(socket.socket(fileno=descriptor)) as server:
        os.set_inheritable(descriptor, False)
        Thread(target=server.serve_forever, daemon=True).start()
        while sys.stdin.readline():  # ends with the driver
            sys.stdout.write((served.end() if served else "{}") + "\n")
            sys.stdout.flush()


def _opened(name: str) -> Served:
    """Return a site with the state that a task begins with, which is in no file from here on."""
    kept = Path("state.json")
    state: State = json.loads(kept.read_text(encoding="utf-8"))
    kept.unlink()
    if name == "webshop":
        return Served(webshop.ShopSite(json.loads(Path("shop.json").read_bytes())).answer, state)
    return Served(SITES[name], state)


if __name__ == "__main__":
    main()
