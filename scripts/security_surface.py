"""Write docs/security-surface.md, the table of every RPC and HTTP route: `python scripts/security_surface.py [--check]`.

Calls come from the service descriptors and routes from the application that is served, so none can be left out; who may
call and where it runs come from the table of routes: a new call without a line there fails.
`tests/escape/test_security_surface.py` tries each row on a running server and checks that the page is fresh.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import grpc
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2
from starlette.routing import BaseRoute, Mount, Route, WebSocketRoute

from agent_runtime.dialects import COUNT_TOKENS, DIALECTS, MODELS
from rock_env.lifecycle import SandboxRecord
from rock_env.server.e2b.envd import MAX_FORM_BYTES
from rock_env.server.e2b.mount import e2b_route
from rock_env.server.e2b.process import Processes
from rock_env.server.interceptors.access import INSIDE, OPEN, SCOPES, AccessControl
from rock_env.server.parsing import MAX_BATCH_BYTES, MAX_DEPTH, MAX_ITEMS, MAX_JSON_BYTES
from rock_env.server.rest.app import application
from rock_env.server.rest.codec import json_bytes
from rock_env.server.rest.gateway import Gateway
from rock_env.wire.channel import MOST_TO_SERVER_BYTES
from rock_env.wire.rest_routes import FILES, ROUTES, methods

PAGE = Path(__file__).resolve().parent.parent / "docs" / "security-surface.md"
DOCS = ("/openapi.json", "/docs", "/redoc", "/healthz")
"""Routes that anybody may ask; they read no body."""


def _size(count: int) -> str:
    return f"{count >> 20} MiB"


def rpcs() -> Iterator[Any]:
    """Yield the descriptor of every method that a server offers over gRPC."""
    files = (*(file.DESCRIPTOR for file in FILES), health_pb2.DESCRIPTOR, reflection_pb2.DESCRIPTOR)
    for file in files:
        for service in file.services_by_name.values():
            yield from service.methods


def who(service: str, name: str) -> str:
    """Return who may make a call."""
    if service == OPEN:
        return "anybody" if name == "Check" else "any token"
    scope = SCOPES.get(service, "admin")
    inside = service == "rock.v1.SandboxService" and name in INSIDE
    return f"`{scope}`, or the sandbox's own token" if inside else f"`{scope}`"


def _grpc_rows() -> Iterator[str]:
    for method in rpcs():
        service = method.containing_service
        name = f"{service.name}.{method.name}"
        runs = ROUTES[name].runs if service.file.package == "rock.v1" else "event loop"
        shape = " → ".join(
            "stream" if streaming else "one"
            for streaming in (method.client_streaming, method.server_streaming)
        )
        read = "no body" if service.full_name == OPEN else "before any message is read"
        yield (
            f"| `/{service.full_name}/{method.name}` | {shape} | {who(service.full_name, method.name)} | {read} | "
            f"{runs} |"
        )


async def _nobody(_: str) -> SandboxRecord | None:
    return None


def served(routes: Sequence[BaseRoute], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield verb and path of every route of an application; the verb of a WebSocket is WS."""
    for route in routes:
        if isinstance(route, Mount):
            yield from served(route.routes, prefix + route.path)
        elif isinstance(route, WebSocketRoute):
            yield "WS", prefix + route.path
        elif isinstance(route, Route):
            for verb in sorted((route.methods or {"GET"}) - {"HEAD"}):
                yield verb, prefix + route.path
        else:
            raise SystemExit(
                f"an unknown kind of route: {route!r}. Teach scripts/security_surface.py to show it."
            )


def http_routes() -> list[tuple[str, str]]:
    """Return every route of the REST face but those of ports, which are the proxy's."""
    door = AccessControl(None, _nobody)
    channel = grpc.aio.insecure_channel("unix:/nowhere")
    gateway = Gateway(channel, door)
    app = application(channel, gateway, [e2b_route(gateway, Processes())], secured=True)
    return list(served(app.router.routes))


def _http_row(verb: str, path: str) -> str:
    calls = {(it.route.verb, it.starlette_path): it for it in methods()}
    method = calls.get((verb if verb != "WS" else "POST", path))
    if path in DOCS:
        return f"| {verb} | `{path}` | anybody | no body is read | – |"
    if path == "/e2b/{rest:path}":
        return f"| {verb} | `{path}` | anybody: always 501 | no body is read | – |"
    if method is not None:
        service, _, name = method.grpc_path.strip("/").rpartition("/")
        bound = f"JSON {_size(json_bytes(method))}"
        if not method.takes_body and method.route.raw and method.client_streaming:
            bound = f"raw bytes as they come, or lines of JSON of {_size(json_bytes(method))}"
        elif not method.takes_body:
            bound = "no body"
        elif verb == "WS":
            bound = f"frames: JSON {_size(json_bytes(method))}, binary {_size(MOST_TO_SERVER_BYTES)}"
        return f"| {verb} | `{path}` | {who(service, name)} | {bound} | `{method.name}` |"
    if not path.startswith("/e2b/"):
        raise SystemExit(f"no row for {verb} {path}. Say in scripts/security_surface.py who may ask it.")
    control = "sandboxes" in path
    holder = "`sandbox` as `X-API-Key`" if control else "the sandbox's own token as `X-Access-Token`"
    bound = f"raw bytes as they come, or a form of {_size(MAX_FORM_BYTES)}"
    return f"| {verb} | `{path}` | {holder} | {f'JSON {_size(MAX_JSON_BYTES)}' if '/files' not in path else bound} | – |"


def agent_routes() -> list[tuple[str, str, bool]]:
    """Return verb, path and whether a key is needed of the gateway that agents call."""
    posts = [("POST", path, True) for path in (*DIALECTS, COUNT_TOKENS)]
    return [*posts, ("GET", MODELS, True), ("GET", f"{MODELS}/{{name}}", True), ("GET", "/", False)]


def page() -> str:
    """Return the whole page."""
    return _PAGE.format(
        message=_size(MOST_TO_SERVER_BYTES),
        batch=_size(MAX_BATCH_BYTES),
        items=MAX_ITEMS,
        depth=MAX_DEPTH,
        calls="\n".join(_grpc_rows()),
        routes="\n".join(_http_row(verb, path) for verb, path in http_routes()),
        agents="\n".join(
            f"| {verb} | `{path}` | {'yes' if key else 'no'} |" for verb, path, key in agent_routes()
        ),
    )


_PAGE = """\
# Every way into a server

Made by `python scripts/security_surface.py`; do not edit. `tests/escape/test_security_surface.py` tries each row on a
running server. What the rows rest on is told in [security.md](security.md) and
[ADR 0026](adr/0026-the-door-reads-headers.md).

Every call of gRPC that is not open is refused from its metadata alone, with `UNAUTHENTICATED` or `PERMISSION_DENIED`,
before a message is read and before it is forwarded to another replica. A message is at most {message}, holds at most
{items} items (list and map entries, with all that is in it) and is nested at most {depth} deep. One of more than 1,000
fields, or of more than 1 MiB, is counted and parsed in a pool of two threads, all else on the event loop.
Large messages of one tenant's calls take 32 MiB at once, of all 64 MiB (`rock_env.server.interceptors.held`).

## gRPC

| call | request → reply | who may | checked | where it runs |
|---|---|---|---|---|
{calls}

## REST, WebSockets and E2B

Refused from the headers alone: 401 or 403, a WebSocket at its handshake. E2B's calls into a box answer 502, which its
SDK expects of a box that is gone. JSON of more than 4 KiB is parsed in the pool, and not if its sender has gone. A batch
(`items`) or a message of a stream may have {batch} of JSON.

| verb | path | who may | largest body | call |
|---|---|---|---|---|
{routes}
| any, WS | `/ports/<label>/…`, or `<label>.host` | the label's secret | as it comes, never kept | `SandboxService.Dial` |

## `--metrics`

`GET /metrics`: anybody who reaches the address. A head of 64 KiB, no body, five seconds. Listen on a private address.

## `--packages`

`GET` and `HEAD` of `/PASS/pypi/…`, `/PASS/npm/…` and `/PASS/debian/…`: a tenant's boxes, by the pass in their variables.
Others get 401. A head of 16 KiB within 15 seconds, no body; 128 connections of an address. All else is refused: it is no
proxy.

## The gateway of agents (`agent_runtime`)

The key of a session is looked up before the body is read: 401. Bodies are at most 32 MiB; large ones are parsed in a
thread.

| verb | path | needs a session's key |
|---|---|---|
{agents}
"""


def main() -> int:
    """Write the page, or with `--check` fail where the one that is there is not fresh."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the page is not fresh")
    wanted = page()
    if not parser.parse_args().check:
        PAGE.write_text(wanted)
    elif PAGE.read_text() != wanted:
        sys.stderr.write(f"{PAGE.name} is not fresh. Run: python scripts/security_surface.py\n")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
