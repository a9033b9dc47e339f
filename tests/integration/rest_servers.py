"""Real servers with REST for the tests of it: behind tokens, each with what a caller needs to know."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import httpx
from secure_servers import OFFER, SERVER, serving, token
from websockets.asyncio import client as websockets

from rock_env.local import start_embedded

connect = partial(websockets.connect, open_timeout=60)
"""Open a WebSocket, on a machine that may be busy."""


@dataclass(frozen=True)
class RestServer:
    """A running server, its two addresses and its tokens."""

    grpc: str
    url: str
    pid: int
    tokens: Path
    key: str
    """A token of the tenant `blue` for sandboxes and environments; empty on a server without tokens."""

    def headers(self, key: str | None = None) -> dict[str, str]:
        key = self.key if key is None else key
        return {"authorization": f"Bearer {key}"} if key else {}

    def client(self, key: str | None = None) -> httpx.AsyncClient:
        return httpx.AsyncClient(base_url=self.url, headers=self.headers(key), timeout=60)

    def websocket(self, path: str) -> str:
        return "ws" + self.url.removeprefix("http") + path


@contextmanager
def guarded_rest(folder: Path, more: Sequence[str] = ()) -> Iterator[RestServer]:
    """Serve gRPC and REST to who has a token."""
    tokens = folder / "tokens.json"
    key = token(tokens, "blue", "sandbox", "env")
    command = [*SERVER, f"--tokens={tokens}", "--http=127.0.0.1:0", *OFFER, *more]
    with serving(command, folder) as (process, address):
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        yield RestServer(address, url, process.pid, tokens, key)


@contextmanager
def open_rest() -> Iterator[RestServer]:
    """Serve gRPC and REST to everybody on this machine."""
    options = ["--insecure", "--http=127.0.0.1:0", "--workers=1", "--isolation=none"]
    with start_embedded(options) as server:
        yield RestServer(server.address, server.http, server.pid, Path("none"), "")


async def make_box(client: httpx.AsyncClient) -> str:
    """Create a sandbox and return its id."""
    reply = await client.post("/v1/sandboxes", json={})
    assert reply.status_code == 200, reply.text
    return str(reply.json()["id"])
