"""A way to an installation in a cluster that nothing outside reaches: the API's `portforward`, as `kubectl` has it.

Used by contexts (`installations`). A port of this machine's loopback is listened on, in a thread of the process's own; each
connection to it is a WebSocket to a pod of the Service that is ready then, so one to a pod that goes is followed by one to
another. It speaks no protocol of ROCK and sees no token: TLS passes through.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import re
import socket
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import httpx
import msgspec
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import WebSocketException
from websockets.typing import Subprotocol

from rock_env.errors import FailedPrecondition, RockError, Unavailable
from rock_env.security.kubeconfig import Access, read_kubeconfig

__all__ = ["InCluster", "forwarded_port"]

log = logging.getLogger(__name__)

_PROTOCOL = Subprotocol("v4.channel.k8s.io")
"""Channel 0 of each port carries its bytes, channel 1 its errors; each begins with the port's number. Older than any cluster
that the chart runs on; newer ones speak SPDY inside a WebSocket besides."""
_DATA, _ERROR = 0, 1
_HEAD_BYTES = 3
_CALL_S = 10.0
"""How long the API may take to answer, the whole of what it says."""
_MOST_ANSWER_BYTES = 32 << 20
_POD = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?", re.ASCII)
_MOST_CARRIED = 256
"""Connections at a time, two descriptors of this process each: other users of the machine can open them, too."""
_BLOCK_BYTES = 64 << 10
_PAUSE_S = 0.5
"""A connection that finds no pod is held for so long: its client connects again at once."""
_Label = Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")]


class InCluster(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, frozen=True):
    """A Service of a cluster, and the account that may forward to its pods."""

    kubeconfig: Annotated[str, msgspec.Meta(min_length=1, max_length=4096)]
    """Its absolute path."""
    context: Annotated[str, msgspec.Meta(min_length=1, max_length=4096)]
    """Of the kubeconfig."""
    namespace: _Label
    service: _Label
    port: Annotated[int, msgspec.Meta(ge=1, le=65535)] = 8120
    """The Service's, where it answers gRPC."""

    @property
    def server_name(self) -> str:
        """Return the name that the server's certificate is for."""
        return f"{self.service}.{self.namespace}.svc"

    def __str__(self) -> str:
        return f"{self.namespace}/{self.service} in {self.context}"


_forwarders: dict[tuple[int, InCluster], _Forwarder] = {}
_opening: dict[tuple[int, InCluster], threading.Lock] = {}
"""One each: a cluster that does not answer keeps nobody from another."""


def forwarded_port(where: InCluster) -> int:
    """Return the port of 127.0.0.1 that leads to the Service while this process lives; the first call opens it.

    Blocks for some calls to the API the first time. Raise `Unavailable` where the API does not answer, and
    `FailedPrecondition` where the account may not look, or there is no such Service.
    """
    key = (os.getpid(), where)  # threads do not outlive a fork
    with _opening.setdefault(key, threading.Lock()):
        if key not in _forwarders:
            _forwarders[key] = _Forwarder(
                where, read_kubeconfig(Path(where.kubeconfig), where.context, programs=True)
            )
        return _forwarders[key].port


class _Forwarder:
    """Listens, on a loop in a daemon thread, until the process ends."""

    def __init__(self, where: InCluster, access: Access) -> None:
        self._where = where
        self._access = access
        self._said = ""
        self._carried = 0
        self._path = f"/api/v1/namespaces/{where.namespace}"
        self._loop = asyncio.new_event_loop()
        name = f"forwarding to {where.namespace}/{where.service}"
        threading.Thread(target=self._run, name=name, daemon=True).start()
        try:
            self.port: int = asyncio.run_coroutine_threadsafe(self._open(), self._loop).result()
        except BaseException:
            self._loop.call_soon_threadsafe(self._loop.stop)
            raise

    def _run(self) -> None:
        try:
            self._loop.run_forever()
        finally:
            self._loop.run_until_complete(self._end())
            self._loop.close()

    async def _end(self) -> None:
        """Close every connection; what is told of that is heard before the loop is closed."""
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for other in others:
            other.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await asyncio.sleep(0)

    async def _open(self) -> int:
        self._client = httpx.AsyncClient(
            base_url=self._access.url,
            verify=self._access.tls,
            timeout=_CALL_S,
            limits=httpx.Limits(
                max_keepalive_connections=0
            ),  # calls are rare: a kept one may be closed just then
            trust_env=False,
        )
        try:
            await self._pods()
            self._server = await asyncio.start_server(self._take, "127.0.0.1", 0, family=socket.AF_INET)
        except BaseException:
            await self._client.aclose()
            raise
        port: int = self._server.sockets[0].getsockname()[1]
        log.info("forwarding 127.0.0.1:%d to %s", port, self._where)
        return port

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection; one too many is closed."""
        if self._carried >= _MOST_CARRIED:
            self._say(f"{_MOST_CARRIED} connections are open, the most there can be")
            writer.close()
            return
        self._carried += 1
        try:
            await self._carry(reader, writer)
        finally:
            self._carried -= 1
            writer.close()

    def _say(self, why: str) -> None:
        if self._said != why:  # once for each reason: the client tries again and again
            log.warning("cannot forward to %s: %s", self._where, why)
        self._said = why

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection until either end closes it."""
        try:
            tunnel = await self._reach()
        except (RockError, OSError, WebSocketException) as error:
            self._say(str(error))
            await asyncio.sleep(_PAUSE_S)
            return
        self._said = ""
        ways = [asyncio.ensure_future(_there(reader, tunnel)), asyncio.ensure_future(_back(tunnel, writer))]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            for ended in await asyncio.gather(*ways, return_exceptions=True):
                if isinstance(ended, Exception):
                    log.info("a connection to %s ended: %s", self._where, ended)
            writer.close()  # before the other end: its client is to connect again at once, to another pod
            await tunnel.close()

    async def _reach(self) -> ClientConnection:
        """Return a connection to one of the pods. Raise the last one's error."""
        error: Exception = Unavailable(f"no pod of the Service {self._where} is ready now")
        for pod, port in await self._pods():
            try:
                return await self._connect(pod, port)
            except (OSError, WebSocketException, TimeoutError) as failed:
                error = failed
        raise error

    async def _connect(self, pod: str, port: int) -> ClientConnection:
        url = f"{self._access.url}{self._path}/pods/{pod}/portforward?ports={port}"
        return await connect(
            url.replace("http", "ws", 1),
            ssl=self._access.tls if url.startswith("https:") else None,
            subprotocols=[_PROTOCOL],
            additional_headers=await self._headers(),
            compression=None,
            open_timeout=_CALL_S,
            close_timeout=1,
            ping_interval=None,  # what it carries pings by itself
            max_size=1 << 20,
            proxy=None,
        )

    async def _pods(self) -> list[tuple[str, int]]:
        """Return the Service's pods that are ready, in any order, with the port that it means. Raise `RockError`."""
        try:
            return await self._found()
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            if isinstance(error, RockError):
                raise
            raise Unavailable(
                f"the API of the Kubernetes cluster at {self._access.url} says of {self._where} what is no Service or no "
                f"pod: {type(error).__name__}"
            ) from error

    async def _found(self) -> list[tuple[str, int]]:
        service = (await self._get(f"services/{self._where.service}"))["spec"]
        ports = [each["targetPort"] for each in service["ports"] if each["port"] == self._where.port]
        if not ports or not service.get("selector"):
            raise FailedPrecondition(
                f"the Service {self._where} has no pods at port {self._where.port}; it has "
                f"{', '.join(str(each['port']) for each in service['ports'])}. Add the context again with another --port."
            )
        selector = ",".join(f"{key}={value}" for key, value in service["selector"].items())
        found = []
        for pod in (await self._get("pods", labelSelector=selector))["items"]:
            port = _number(pod, ports[0])
            if port and _is_ready(pod):
                found.append((_POD.fullmatch(pod["metadata"]["name"])[0], port))  # type: ignore[index]
        random.shuffle(found)
        return found

    async def _get(self, path: str, **params: str) -> Any:
        headers = {**await self._headers(), "Accept-Encoding": "identity"}
        try:
            async with (
                asyncio.timeout(_CALL_S),
                self._client.stream("GET", f"{self._path}/{path}", params=params, headers=headers) as answer,
            ):
                status, content = answer.status_code, await _whole(answer)
        except (httpx.TransportError, TimeoutError) as error:
            raise Unavailable(
                f"the API of the Kubernetes cluster does not answer at {self._access.url}: "
                f"{str(error) or type(error).__name__}"
            ) from error
        if status >= 500:
            raise Unavailable(f"the API of the Kubernetes cluster answers with status {status}")
        if status != 200:
            raise FailedPrecondition(
                f"the cluster refuses the way to {self._where} (status {status}): {_said(content)}. The account "
                "needs get on services, list on pods and create on pods/portforward there; `ale rock context list` says "
                "where it leads."
            )
        return json.loads(content)

    async def _headers(self) -> dict[str, str]:
        token = await asyncio.to_thread(self._access.token)
        return {"Authorization": f"Bearer {token}"} if token else {}


async def _whole(answer: httpx.Response) -> bytes:
    content = bytearray()
    async for block in answer.aiter_raw():
        content += block
        if len(content) > _MOST_ANSWER_BYTES:
            raise Unavailable(
                f"the API of the Kubernetes cluster answers with more than {_MOST_ANSWER_BYTES} bytes"
            )
    return bytes(content)


async def _there(reader: asyncio.StreamReader, tunnel: ClientConnection) -> None:
    while block := await reader.read(_BLOCK_BYTES):
        await tunnel.send(bytes((_DATA,)) + block)


async def _back(tunnel: ClientConnection, writer: asyncio.StreamWriter) -> None:
    begun: set[int] = set()
    async for message in tunnel:
        if not isinstance(message, bytes) or not message:
            raise Unavailable("the cluster's API sent no message of port-forward")
        channel = message[0]
        if channel not in begun:
            begun.add(channel)
            if len(message) != _HEAD_BYTES:
                raise Unavailable("the cluster's API began a channel of port-forward without its port")
        elif channel == _ERROR:
            raise Unavailable(f"the pod cannot be reached: {message[1:500].decode(errors='replace')}")
        else:
            writer.write(message[1:])
            await writer.drain()


def _number(pod: Mapping[str, Any], port: int | str) -> int:
    """Return the number of a port, which may have a name of the pod's; 0 where the pod has none of that name."""
    if isinstance(port, int):
        return port
    named = [each for it in pod["spec"]["containers"] for each in it.get("ports") or ()]
    return next((int(each["containerPort"]) for each in named if each.get("name") == port), 0)


def _is_ready(pod: Mapping[str, Any]) -> bool:
    conditions = pod.get("status", {}).get("conditions") or ()
    ready = any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
    return ready and not pod["metadata"].get("deletionTimestamp")


def _said(content: bytes) -> str:
    try:
        return str(json.loads(content)["message"])[:500]
    except (ValueError, KeyError, TypeError, RecursionError):
        return "no reason given"
