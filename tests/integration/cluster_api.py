"""The part of a cluster's API that a way to a Service needs: Services, pods, and `portforward` of real connections."""

from __future__ import annotations

import asyncio
import http
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

TOKEN = "account"
PREFIX = "/api/v1/namespaces/rock/"


@dataclass
class ClusterApi:
    """A namespace `rock` with a Service `rock`; pods are ports of this machine."""

    url: str = ""
    pods: dict[str, int] = field(default_factory=dict)
    """Ready ones: name to where they listen."""
    others: list[dict[str, Any]] = field(default_factory=list)
    """Objects of pods that are not to be used."""
    target: int | str = "grpc"
    refusal: tuple[int, str] | None = None
    odd: bytes | None = None
    """Said instead of everything else."""
    reached: list[str] = field(default_factory=list)
    """Which pods connections went to."""
    open: dict[str, list[ServerConnection]] = field(default_factory=dict)

    def kubeconfig(self, folder: Path, **user: Any) -> Path:
        path = folder / "kubeconfig"
        given = {
            "current-context": "here",
            "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": self.url}}],
            "users": [{"name": "u", "user": user or {"token": TOKEN}}],
        }
        path.write_text(json.dumps(given))
        return path

    def delete(self, name: str) -> None:
        """Take a pod away, with its connections."""
        del self.pods[name]
        for connection in self.open.pop(name, []):
            connection.loop.call_soon_threadsafe(connection.transport.abort)

    def answer(self, connection: ServerConnection, request: Request) -> Response | None:
        path, _, query = request.path.partition("?")
        if request.headers.get("Authorization") != f"Bearer {TOKEN}":
            return _json(401, {"message": "Unauthorized"})
        if self.refusal is not None:
            return _json(self.refusal[0], {"message": self.refusal[1]})
        if self.odd is not None:
            return Response(200, "OK", Headers({"Content-Length": str(len(self.odd))}), self.odd)
        if path == f"{PREFIX}services/rock":
            ports = [{"port": 8120, "targetPort": self.target}, {"port": 8121, "targetPort": 8121}]
            return _json(200, {"spec": {"ports": ports, "selector": {"app": "rock", "part": "server"}}})
        if path == f"{PREFIX}pods":
            assert query == "labelSelector=app%3Drock%2Cpart%3Dserver"
            return _json(200, {"items": [*map(self._pod, self.pods), *self.others]})
        name = path.removeprefix(f"{PREFIX}pods/").removesuffix("/portforward")
        if name in self.pods and query == f"ports={self.pods[name]}":
            return None
        return _json(404, {"message": f"{path} not found"})

    def _pod(self, name: str) -> dict[str, Any]:
        ports = [{"name": "https", "containerPort": 1}, {"name": "grpc", "containerPort": self.pods[name]}]
        return pod(name, ready="True", ports=ports)

    async def forward(self, connection: ServerConnection) -> None:
        name = connection.request.path.split("/")[6]  # type: ignore[union-attr]
        port = self.pods[name]
        head = port.to_bytes(2, "little")
        await connection.send(b"\0" + head)
        await connection.send(b"\1" + head)
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError as error:
            await connection.send(b"\1" + f"cannot reach {port}: {error}".encode())
            return
        self.reached.append(name)
        self.open.setdefault(name, []).append(connection)
        back = asyncio.create_task(_back(reader, connection))
        try:
            with suppress(ConnectionClosed):
                async for message in connection:
                    assert isinstance(message, bytes)
                    assert message[0] == 0
                    writer.write(message[1:])
        finally:
            back.cancel()
            await asyncio.gather(back, return_exceptions=True)
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()


async def _back(reader: asyncio.StreamReader, connection: ServerConnection) -> None:
    while block := await reader.read(65536):
        await connection.send(b"\0" + block)
    await connection.close()


def pod(name: str, *, ready: str, ports: list[dict[str, Any]], **about: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name, **about},
        "spec": {"containers": [{"ports": ports}]},
        "status": {"conditions": [{"type": "Ready", "status": ready}]},
    }


def _json(status: int, body: dict[str, Any]) -> Response:
    content = json.dumps(body).encode()
    headers = Headers({"Content-Type": "application/json", "Content-Length": str(len(content))})
    return Response(status, http.HTTPStatus(status).phrase, headers, content)


@contextmanager
def cluster_api() -> Iterator[ClusterApi]:
    """Serve one in a thread."""
    made = ClusterApi()
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def begin() -> Server:
        return await serve(
            made.forward,
            "127.0.0.1",
            0,
            process_request=made.answer,
            subprotocols=["v4.channel.k8s.io"],  # type: ignore[list-item]
            compression=None,
        )

    try:
        server = asyncio.run_coroutine_threadsafe(begin(), loop).result(60)
        made.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield made
    finally:

        async def end() -> None:
            server.close()
            await server.wait_closed()

        asyncio.run_coroutine_threadsafe(end(), loop).result(60)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
