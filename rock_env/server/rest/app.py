"""The REST face: every call of the gRPC services over HTTP, in the server's own process and event loop.

Started by `server/app.py` with `--http`. It is Starlette with routes from `rest_routes`, FastAPI's pages for the
description at /openapi.json, and uvicorn. It has no logic of its own: a request becomes a call to this server's gRPC
handlers, once the same guard as at gRPC's door has admitted its headers.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from importlib import metadata
from typing import Any

import grpc
import uvicorn
from fastapi.openapi.docs import get_redoc_html, get_swagger_ui_html
from grpc_health.v1 import health_pb2, health_pb2_grpc
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route, WebSocketRoute

from rock_env.errors import NotFound, PermissionDenied, RockError
from rock_env.server.interceptors.access import AccessControl
from rock_env.server.options import ServerOptions
from rock_env.server.rest.codec import MAX_FRAME_BYTES, definite, problem, rock_error
from rock_env.server.rest.connections import HEAD_BYTES, Connections, HttpConnection, SocketConnection
from rock_env.server.rest.gateway import Gateway
from rock_env.server.rest.openapi import openapi
from rock_env.server.rest.proxy import Proxy
from rock_env.server.rest.socket import socket_endpoint
from rock_env.wire.arrivals import Arrivals
from rock_env.wire.bodies import QuietServer
from rock_env.wire.channel import CLIENT_OPTIONS, is_local
from rock_env.wire.listening import host_and_port, listen
from rock_env.wire.rest_routes import methods

__all__ = ["application", "build", "face", "inner_port", "serving"]


def build(channel: grpc.aio.Channel, gateway: Gateway, more: Sequence[BaseRoute], door: AccessControl) -> Any:
    """Return the ASGI application that answers over `channel`."""
    app = application(channel, gateway, more, secured=door.guarded)
    return Connections(Proxy(gateway, app if door.guarded else _SameSite(app)))


def application(
    channel: grpc.aio.Channel, gateway: Gateway, more: Sequence[BaseRoute], *, secured: bool
) -> Starlette:
    """Return all routes but those of ports, `more` among them."""
    known = list(methods())
    version = metadata.version("ale-rl")
    health = health_pb2_grpc.HealthStub(channel)

    async def healthz(_: Request) -> Response:
        reply = await health.Check(health_pb2.HealthCheckRequest())
        name = health_pb2.HealthCheckResponse.ServingStatus.Name(reply.status)
        return JSONResponse({"status": name}, 200 if name == "SERVING" else 503)

    routes: list[BaseRoute] = [
        _page("/openapi.json", JSONResponse(openapi(known, version=version, secured=secured))),
        _page("/docs", get_swagger_ui_html(openapi_url="/openapi.json", title="ROCK")),
        _page("/redoc", get_redoc_html(openapi_url="/openapi.json", title="ROCK")),
    ]
    for method in known:
        path = method.starlette_path
        routes.append(Route(path, gateway.endpoint(method), methods=[method.route.verb]))
        if method.client_streaming and method.server_streaming:
            routes.append(WebSocketRoute(path, socket_endpoint(gateway, method)))
    refusals = {404: _no_route, 405: _no_route, grpc.aio.AioRpcError: _lost, Exception: _bug}
    app = Starlette(routes=[*routes, Route("/healthz", healthz), *more], exception_handlers=refusals)
    app.router.redirect_slashes = False
    return app


def _page(path: str, made: Response) -> Route:
    """Return the route of what is made once: everybody may ask for it, and it is long."""

    async def page(_: Request) -> Response:
        return made

    return Route(path, page)


async def _no_route(request: Request, _: Exception) -> Response:
    return problem(
        NotFound(f"there is no {request.method} {request.url.path}; /openapi.json lists what there is")
    )


async def _lost(_: Request, failure: Exception) -> Response:
    assert isinstance(failure, grpc.aio.AioRpcError)
    return problem(rock_error(failure), known=definite(failure))


async def _bug(_: Request, __: Exception) -> Response:
    """Answer where a handler failed as it never should; uvicorn logs the traceback."""
    return problem(
        RockError("internal error of the ROCK server, see its log. Please report it."), known=False
    )


class _SameSite:
    """Keeps web pages of others out of a server without tokens: who can reach it could run code in its boxes.

    A browser sends `Origin` with what a page asks of another site, and a name that an attacker points at 127.0.0.1
    stands in `Host`.
    """

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] in ("http", "websocket"):
            refused = self._refusal(Headers(scope=scope))
            if refused is not None:
                await problem(refused)(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _refusal(self, headers: Headers) -> RockError | None:
        host = headers.get("host", "")
        name = host if ":" in host.rpartition("]")[2] else f"{host}:80"
        try:
            local = is_local(name) or name.rpartition(":")[0].endswith(".localhost")
        except RockError:
            local = False
        origin = headers.get("origin")
        if not local:
            return PermissionDenied(
                f"this server has no tokens and answers to loopback names only, not {host!r}"
            )
        if origin is not None and origin.partition("://")[2] != host:
            return PermissionDenied(f"this server has no tokens and refuses pages of {origin!r}")
        return None


class _Denials(logging.Filter):
    """Drops what uvicorn says, wrongly, whenever a WebSocket is answered with an HTTP error."""

    def filter(self, record: logging.LogRecord) -> bool:
        return record.msg != "ASGI callable returned without completing handshake."


_DENIALS = _Denials()


@asynccontextmanager
async def serving(app: Any, options: ServerOptions) -> AsyncIterator[str]:
    """Serve `app` for the time of the block; yield its URL. Raise `Unavailable` where it cannot listen."""
    listener = listen(options.http)
    logging.getLogger("uvicorn.error").addFilter(_DENIALS)  # the same object: added once
    config = uvicorn.Config(
        app,
        http=HttpConnection,
        ws=SocketConnection,
        h11_max_incomplete_event_size=HEAD_BYTES,
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        ws_max_size=MAX_FRAME_BYTES,
        ws_ping_timeout=None,  # a socket whose input is held back answers no ping; TCP notices the dead ones
        ws_per_message_deflate=False,
        timeout_graceful_shutdown=max(1, round(options.drain_s)),
        ssl_certfile=options.cert or None,
        ssl_keyfile=options.key or None,
        ssl_ca_certs=options.client_ca or None,
        ssl_cert_reqs=ssl.CERT_REQUIRED if options.client_ca else ssl.CERT_NONE,
    )
    config.load()
    server = QuietServer(config)

    def connection() -> HttpConnection:
        made = HttpConnection(config, server.server_state, {})
        made.arrivals = arrivals
        return made

    arrivals = Arrivals(listener, connection, config.ssl)
    running = asyncio.ensure_future(server.serve(sockets=[]))
    arrivals.open()
    try:
        yield f"{'https' if options.cert else 'http'}://{host_and_port(listener)}"
    finally:
        arrivals.close()
        server.should_exit = True
        await running
        listener.close()


@contextlib.contextmanager
def inner_port(server: grpc.aio.Server) -> Iterator[str]:
    """Let a server that has not started yet listen for its own REST face too; yield the address."""
    with tempfile.TemporaryDirectory(prefix="rock-rest-") as folder:  # mode 0700
        server.add_insecure_port(f"unix:{folder}/s")
        yield f"unix:{folder}/s"


@asynccontextmanager
async def face(
    inner: str,
    options: ServerOptions,
    door: AccessControl,
    mounted: Callable[[Gateway], AbstractAsyncContextManager[BaseRoute]],
) -> AsyncIterator[str]:
    """Serve REST, and what is mounted beside it, for the server that listens at `inner`; yield the URL."""
    async with grpc.aio.insecure_channel(inner, options=CLIENT_OPTIONS) as channel:
        gateway = Gateway(channel, door)
        async with mounted(gateway) as route, serving(build(channel, gateway, [route], door), options) as url:
            yield url
