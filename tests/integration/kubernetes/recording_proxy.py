"""A proxy in front of a cluster's API that notes what is asked for, in the words of the cluster's access control."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from rock_env.backends.kubernetes.access import Access

Right = tuple[str, str, str]
"""API group, resource, verb, as in a Role's rule."""

_OBJECTS = re.compile(
    r"/(?:api/v1|apis/(?P<group>[^/]+)/[^/]+)(?:/namespaces/[^/]+)?/(?P<kind>[a-z]+)"
    r"(?:/(?P<name>[^/]+)(?:/(?P<part>[a-z]+))?)?"
)
_NAMED = {"GET": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete", "POST": "create"}
_ALL = {"GET": "list", "POST": "create", "DELETE": "deletecollection"}


def right(method: str, path: str, watch: bool) -> Right:
    """Return the right that a request takes. Raise `ValueError` for what is about no object."""
    found = _OBJECTS.fullmatch(path)
    if found is None:
        raise ValueError(f"not about objects: {method} {path}")
    verb = _NAMED[method] if found["name"] else "watch" if watch else _ALL[method]
    resource = "/".join(part for part in (found["kind"], found["part"]) if part)
    return found["group"] or "", resource, verb


class _Server(uvicorn.Server):
    """Says to another thread when it listens."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listens = threading.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listens.set()


@contextmanager
def recording_proxy(access: Access) -> Iterator[tuple[str, set[Right]]]:
    """Pass requests on to the API as they are, on a port of loopback; yield its URL and the rights that they took."""
    seen: set[Right] = set()
    app = _application(access, seen)
    server = _Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="critical", lifespan="on"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        assert server.listens.wait(60)
        (listener,) = server.servers[0].sockets
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", seen
    finally:
        server.should_exit = server.force_exit = True
        thread.join()


def _application(access: Access, seen: set[Right]) -> Starlette:
    @asynccontextmanager
    async def life(app: Starlette) -> AsyncIterator[None]:
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(
            base_url=access.url, verify=access.tls, timeout=400, limits=limits
        ) as client:
            app.state.client = client
            yield

    async def pass_on(request: Request) -> Response:
        seen.add(right(request.method, request.url.path, "watch" in request.query_params))
        client: httpx.AsyncClient = request.app.state.client
        headers = {
            name: request.headers[name]
            for name in ("authorization", "content-type")
            if name in request.headers
        }
        asked = client.build_request(
            request.method,
            request.url.path,
            params=request.url.query.encode(),
            headers=headers,
            content=await request.body(),
        )
        answer = await client.send(asked, stream=True)

        async def body() -> AsyncIterator[bytes]:
            try:
                async for block in answer.aiter_bytes():
                    yield block
            except httpx.TransportError:
                pass  # the API ended it: so do we
            finally:
                await answer.aclose()

        kept = {"content-type": answer.headers.get("content-type", "application/json")}
        return StreamingResponse(body(), answer.status_code, kept)

    methods = ["GET", "PUT", "PATCH", "DELETE", "POST"]
    return Starlette(routes=[Route("/{path:path}", pass_on, methods=methods)], lifespan=life)
