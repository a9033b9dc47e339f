"""The E2B face as one route, which `server/app` mounts beside REST."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route

from rock_env.errors import Unimplemented
from rock_env.server.e2b.control import Boxes, control_routes
from rock_env.server.e2b.envd import envd_routes
from rock_env.server.e2b.process import Processes
from rock_env.server.e2b.wire import control_problem
from rock_env.server.rest.gateway import Gateway

__all__ = ["e2b_face", "e2b_route"]

_VERBS = ["GET", "POST", "PUT", "PATCH", "DELETE"]


@asynccontextmanager
async def e2b_face(gateway: Gateway) -> AsyncIterator[BaseRoute]:
    """Yield the route; leaving ends the commands that were begun there."""
    async with Processes() as processes:
        yield e2b_route(gateway, processes)


def e2b_route(gateway: Gateway, processes: Processes) -> BaseRoute:
    """Return E2B's two APIs below /e2b."""
    boxes = Boxes(gateway)
    known = [*control_routes(boxes), *envd_routes(boxes, processes)]
    return Mount("/e2b", routes=[*known, Route("/{rest:path}", _no_such_call, methods=_VERBS)])


async def _no_such_call(request: Request) -> Response:
    what = request.url.path.removeprefix("/e2b")
    return control_problem(
        Unimplemented(f"E2B's {request.method} {what} has no counterpart on a ROCK server")
    )
