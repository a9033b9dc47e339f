"""The two ways to reach a server, for suites that must hold over both.

`ROCK_TEST_TRANSPORTS=rest` runs every test of those suites over REST (`tests/integration/rest/test_rest_contract.py` does);
without it all run over gRPC and a representative part over REST as well. `ROCK_TEST_SERVERS=PORT,PORT` runs those marked
`any_address` against servers that run already, behind a proxy whose gRPC and REST ports these are
(`tests/integration/server/test_behind_a_proxy.py` does).
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any

import grpc
import round_robin

from rock_env.client.rest import RestChannel
from rock_env.lifecycle import SandboxRecord
from rock_env.local import EmbeddedServer, start_embedded
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
_RUNNING = os.environ.get("ROCK_TEST_SERVERS", "")


@dataclass(frozen=True)
class Addresses:
    """Where to reach servers that others started."""

    address: str
    http: str


def running() -> Addresses | None:
    """Return where the servers are that a test of `any_address` is to use; None: it starts its own."""
    if not _RUNNING:
        return None
    port, http = _RUNNING.split(",")
    return Addresses(f"grpc://{round_robin.HOSTS[0]}:{port}", f"http://{round_robin.HOSTS[0]}:{http}")


@contextmanager
def served(options: Sequence[str] = ()) -> Iterator[EmbeddedServer | Addresses]:
    """Start a server of the test's own with these options, or yield those that run already."""
    there = running()
    if there is not None:
        yield there
        return
    with start_embedded(options) as started:
        yield started


def balance_calls() -> None:
    """Let each gRPC channel to the running servers' proxy give every call to the next of its connections."""
    plain, port = grpc.aio.insecure_channel, _RUNNING.split(",", maxsplit=1)[0]

    def balanced(to: str, options: Sequence[tuple[str, Any]] = (), **more: Any) -> Any:
        if to == f"{round_robin.HOSTS[0]}:{port}":
            to = "ipv4:" + ",".join(f"{host}:{port}" for host in round_robin.HOSTS)
        return plain(to, options=[*options, ("grpc.lb_policy_name", "round_robin")], **more)

    grpc.aio.insecure_channel = balanced


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
