"""Who may ask the console: looked at in the head of a request, before anything else of it is.

A page of a stranger in the user's own browser is kept out by `Host` and `Origin`, everybody else on a network by a token.
The headers of every answer keep what a rollout holds from running, from being framed and from being kept.
"""

from __future__ import annotations

import hmac
import ipaddress
import re
import secrets
import socket
from dataclasses import dataclass, field
from http import HTTPStatus

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["Door", "is_loopback"]

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_HOST = re.compile(r"(?:\[(?P<six>[0-9a-fA-F:.]{2,45})\]|(?P<name>[A-Za-z0-9.-]{1,255}))(?::[0-9]{1,5})?")
_TOKEN = re.compile(rb"token=([A-Za-z0-9_-]{1,100})")
_COMPUTES = re.compile(r"/api/runs/[^/]+/account")
"""The one path that has something computed; it alone takes POST."""
_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


_OF_ANSWERS = {"content-security-policy": "default-src 'none'; sandbox; frame-ancestors 'none'"}
"""What is no page runs nothing and is of no origin, should a browser take it for one."""


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches an address."""
    return host in _LOOPBACK


@dataclass(frozen=True, slots=True)
class Door:
    """An ASGI application before another one, which gets the requests of those who may ask."""

    app: ASGIApp
    host: str
    """The address that is listened on."""
    token: str = ""
    """What a browser shows once; "" asks for none, on loopback only."""
    session: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    """The cookie that it gets for the token."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        if scope["type"] != "http":
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                told = _HEADERS | (_OF_ANSWERS if scope["path"].startswith("/api/") else {})
                set_here = {name.encode(): value.encode() for name, value in told.items()}
                kept = [(name, value) for name, value in message["headers"] if name.lower() not in set_here]
                message = {**message, "headers": [*kept, *set_here.items()]}
            await send(message)

        answer = self._refusal(scope)
        await (answer or self.app)(scope, receive, guarded)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if len(headers.getlist("host")) != 1 or not self._is_ours(host):
            return _refused(
                HTTPStatus.FORBIDDEN, "this console is not called so: use the address that it printed"
            )
        wants = scope["method"]
        computes = _COMPUTES.fullmatch(scope["path"]) is not None
        if wants not in (("POST",) if computes else ("GET", "HEAD")):
            return _refused(HTTPStatus.METHOD_NOT_ALLOWED, "the console is read with GET")
        origin = headers.get("origin")
        if (origin is None and computes) or origin not in (None, f"http://{host}"):
            return _refused(HTTPStatus.FORBIDDEN, "another page asks: open the console itself")
        is_link = scope["path"] == "/" and headers.get("sec-fetch-mode", "navigate") == "navigate"
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin") and not is_link:
            return _refused(HTTPStatus.FORBIDDEN, "another page asks: open the console itself")
        return self._unknown(scope, headers) if self.token else None

    def _is_ours(self, host: str) -> bool:
        """Return whether a `Host` is this server's: a name that somebody else resolves to it is none."""
        found = _HOST.fullmatch(host)
        if found is None:
            return False
        name = (found["six"] or found["name"]).lower()
        if name in _LOOPBACK or (self.token and name in {self.host.lower(), socket.gethostname().lower()}):
            return True
        return bool(self.token) and _is_address(name)

    def _unknown(self, scope: Scope, headers: Headers) -> Response | None:
        """Return the answer to who shows no cookie: one for the right token, else a refusal."""
        if _same(_cookie(headers.get("cookie", ""), self._name(scope)), self.session):
            return None
        shown = _TOKEN.fullmatch(scope["query_string"]) if scope["path"] == "/" else None
        if not _same(shown[1].decode() if shown else "", self.token):
            return _refused(
                HTTPStatus.UNAUTHORIZED,
                "open the whole address that `ale console` printed: it holds the token",
            )
        answer = RedirectResponse("/", HTTPStatus.SEE_OTHER)  # the address without the token
        answer.set_cookie(self._name(scope), self.session, httponly=True, samesite="lax")
        return answer

    def _name(self, scope: Scope) -> str:
        """Return the cookie's name: cookies of one host are common to its ports."""
        return f"ale-console-{(scope.get('server') or ('', 0))[1]}"


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _cookie(text: str, name: str) -> str:
    """Return a cookie's value, "" where there is none, whatever other servers of this host have set."""
    pairs = (each.strip().partition("=") for each in text.split(";"))
    return next((value for key, _, value in pairs if key == name), "")


def _same(given: str, expected: str) -> bool:
    return hmac.compare_digest(given.encode(errors="replace"), expected.encode())


def _refused(status: HTTPStatus, why: str) -> Response:
    return PlainTextResponse(f"{status.phrase}: {why}.\n", status)
