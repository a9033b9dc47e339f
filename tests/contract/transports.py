"""The two ways to reach a server, for suites that must hold over both.

`ROCK_TEST_TRANSPORTS=rest` runs every test of those suites over REST (`tests/integration/rest/test_rest_contract.py` does);
without it all run over gRPC and a representative part over REST as well.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc

from rock_env.client.rest import RestChannel
from rock_env.lifecycle import SandboxRecord
from rock_env.server.e2b.mount import e2b_face
from rock_env.server.interceptors.access import AccessControl
from rock_env.server.options import ServerOptions
from rock_env.server.rest.app import face, inner_port
from rock_env.wire.channel import target

_ASKED = os.environ.get("ROCK_TEST_TRANSPORTS", "").split(",")
EACH = _ASKED if _ASKED != [""] else ["grpc", "rest"]
"""For tests that are cheap enough to run over both."""
FIRST = EACH[0]
"""For the others."""
REST_OPTIONS = ["--insecure", "--http=127.0.0.1:0"]


def channel(address: str) -> Any:
    """Open a channel to an address of either kind."""
    if address.startswith("http"):
        return RestChannel(address)
    return grpc.aio.insecure_channel(target(address))


async def _unknown(_: str) -> SandboxRecord | None:
    return None


@asynccontextmanager
async def started(server: grpc.aio.Server, socket: str, transport: str) -> AsyncIterator[Any]:
    """Start a server of this process at a unix socket and yield a channel to it."""
    server.add_insecure_port(socket)
    with inner_port(server) as inner:
        await server.start()
        if transport == "grpc":
            async with channel(socket) as opened:
                yield opened
        else:
            door = AccessControl(None, _unknown)
            async with (
                face(inner, ServerOptions(http="127.0.0.1:0"), door, e2b_face) as url,
                channel(url) as opened,
            ):
                yield opened
