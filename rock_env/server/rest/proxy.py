"""HTTP and WebSocket into a sandbox: requests for an exposed port go to whoever listens there, in both directions.

The outermost layer of the REST face. Which port is meant stands in the path, `/ports/<label>/…`, or is the first label
of the host name, `<label>.anything`; the label is the port, the sandbox and a secret, and what `Expose` returns is made
of it. Each request dials the box anew. The box never sees a token of ours.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from typing import Any

import grpc
import httpcore
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import RedirectResponse

from rock_env.errors import FailedPrecondition, RockError, Unavailable
from rock_env.security.sandbox_tokens import from_port_label
from rock_env.server.rest.codec import definite, problem, rock_error
from rock_env.server.rest.dial import Dialling
from rock_env.server.rest.gateway import Gateway
from rock_env.server.rest.proxy_socket import forward_socket
from rock_env.server.rest.request import BEARER, Gone, blocks
from rock_env.wire.rest_routes import methods

__all__ = ["Proxy", "Target"]

_PATH = "/ports/"
_HOP = frozenset(
    {
        *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection"),
        *("te", "trailer", "transfer-encoding", "upgrade"),
    }
)
"""Headers that are about one connection and are never passed on (RFC 9110, 7.6.1)."""
_OURS = frozenset({"authorization", "x-api-key", "x-access-token"})
"""Headers that may hold a token of ours; an application's own pass."""
_HOST_WIDE = frozenset(
    {
        *("set-cookie", "set-cookie2", "clear-site-data", "set-login", "activate-storage-access"),
        *("strict-transport-security", "public-key-pins", "expect-ct", "alt-svc"),
        *("service-worker-allowed", "origin-agent-cluster", "accept-ch", "critical-ch", "use-as-dictionary"),
        *("sec-session-registration", "secure-session-registration"),
        *("nel", "report-to", "reporting-endpoints", "x-permitted-cross-domain-policies"),
    }
)
"""Answers that a browser takes as said by the whole host, which by path is ours and not the application's."""
_FENCE = "sandbox allow-scripts allow-forms allow-popups allow-modals allow-downloads"
"""A page from a box has no origin, where it shares ours: it could call the API as the user who looks at it."""
_DIAL = next(method for method in methods() if method.name == "SandboxService.Dial")


@dataclass(frozen=True, slots=True)
class Target:
    """What a request for a port is for."""

    sandbox_id: str
    port: int
    token: str
    prefix: str
    """What stands before the application's own path; empty where it has a host name of its own."""
    path: str
    """The application's path and query, as they were sent; no slash where the URL ends before it."""


class Proxy:
    """Takes the requests for ports, and passes all others to `app`."""

    def __init__(self, gateway: Gateway, app: Any) -> None:
        self._gateway = gateway
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        target = _target(scope) if scope["type"] in ("http", "websocket") else None
        if target is None:
            await self._app(scope, receive, send)
            return
        if scope["type"] == "http" and not target.path.startswith("/"):  # relative links need the slash
            await RedirectResponse(f"{target.prefix}/{target.path}", 308)(scope, receive, send)
            return
        dialling = Dialling(self._gateway.call(_DIAL), target.sandbox_id, target.port, target.token)
        try:
            await self._gateway.admit(_DIAL, dialling.metadata)
            if scope["type"] == "websocket":
                headers = passed_on(Headers(scope=scope).items(), target)
                await forward_socket(dialling, target.path or "/", headers, (scope, receive, send))
            else:
                await _forward(dialling, target, Request(scope, receive), send)
        except Gone:
            return
        except RockError as error:
            await _refused(error)(scope, receive, send)
        except grpc.aio.AioRpcError as failure:
            await _refused(rock_error(failure), known=definite(failure))(scope, receive, send)
        except (httpcore.ProtocolError, httpcore.NetworkError) as error:
            wrong = Unavailable(f"port {target.port} of the sandbox did not answer as HTTP does: {error}")
            await _refused(wrong)(scope, receive, send)


def _refused(error: RockError, *, known: bool = True) -> Any:
    """Return the answer for a port that cannot be reached: 502, unless the caller is to blame."""
    bad_gateway = isinstance(error, FailedPrecondition | Unavailable) or error.http >= 500
    return problem(error, status=502 if bad_gateway else 0, known=known)


def _target(scope: Any) -> Target | None:
    query = b"?" + scope["query_string"] if scope["query_string"] else b""
    raw = (scope.get("raw_path") or scope["path"].encode()) + query
    host = Headers(scope=scope).get("host", "")
    found = from_port_label(host.partition(".")[0])
    if found is not None:
        return Target(*found, prefix="", path=raw.decode("latin-1"))
    if not scope["path"].startswith(_PATH):
        return None
    wanted = raw.decode("latin-1").removeprefix(_PATH)
    label = re.split("[/?]", wanted, maxsplit=1)[0]
    found = from_port_label(label)
    return Target(*found, prefix=f"{_PATH}{label}", path=wanted.removeprefix(label)) if found else None


def passed_on(headers: Iterable[tuple[str, str]], target: Target) -> list[tuple[str, str]]:
    """Return the headers of a request that the application gets."""
    given = [(name.lower(), value) for name, value in headers]
    hop = _HOP | _named(given)
    kept = [
        (name, value)
        for name, value in given
        if name not in hop and name != "host" and not _holds_token(name, value)
    ]
    host = next((value for name, value in given if name == "host"), "")
    forwarded = [("host", f"127.0.0.1:{target.port}"), ("x-forwarded-host", host)]
    if target.prefix:
        forwarded.append(("x-forwarded-prefix", target.prefix))
        kept = [(name, value) for name, value in kept if name != "cookie"]  # the host's, so not its own
    return [*forwarded, *((name, value) for name, value in kept if not name.startswith("x-forwarded-"))]


def _holds_token(name: str, value: str) -> bool:
    value = value.lower()
    return (name in _OURS and "rock_" in value) or (name == "sec-websocket-protocol" and BEARER in value)


def _named(headers: Iterable[tuple[str, str]]) -> set[str]:
    """Return the headers that `Connection` says are about this connection."""
    return {
        part.strip().lower() for name, value in headers if name == "connection" for part in value.split(",")
    }


async def _forward(dialling: Dialling, target: Target, request: Request, send: Any) -> None:
    headers = passed_on(request.headers.items(), target)
    bodied = "content-length" in request.headers or "transfer-encoding" in request.headers
    if bodied and "content-length" not in request.headers:
        headers.append(("transfer-encoding", "chunked"))
    async with (
        httpcore.AsyncConnectionPool(network_backend=dialling, max_connections=1) as pool,
        pool.stream(
            request.method,
            httpcore.URL(
                scheme=b"http", host=b"127.0.0.1", port=target.port, target=target.path.encode("latin-1")
            ),
            headers=[(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers],
            content=blocks(request) if bodied else None,
        ) as reply,
    ):
        start = {"type": "http.response.start", "status": reply.status, "headers": _returned(reply, target)}
        await send(start)
        async for block in _body(reply, dialling, request):
            await send({"type": "http.response.body", "body": block, "more_body": True})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _body(reply: Any, dialling: Dialling, request: Request) -> AsyncIterator[bytes]:
    """Yield the answer's body; the connection is cut when the client is gone."""
    async with dialling.while_listening(request):
        async for block in reply.aiter_stream():
            yield block


def _returned(reply: Any, target: Target) -> list[tuple[bytes, bytes]]:
    given = [(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in reply.headers]
    dropped = _HOP | _named(given) | {"date"}  # ours is there already
    if target.prefix:
        dropped |= _HOST_WIDE
    kept = [(name, _relocated(name, value, target)) for name, value in given if name not in dropped]
    if target.prefix:
        kept.append(("content-security-policy", _FENCE))
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in kept]


def _relocated(name: str, value: str, target: Target) -> str:
    """Return a header with the application's own address replaced by the one it is reached by."""
    if name not in ("location", "content-location"):
        return value
    for own in (f"http://127.0.0.1:{target.port}", f"http://localhost:{target.port}"):
        if value.startswith((f"{own}/", f"{own}?")) or value == own:
            value = value.removeprefix(own) or "/"
    return f"{target.prefix}{value}" if value.startswith("/") and not value.startswith("//") else value
