"""The Docker engine as this package needs it: calls over its unix socket, its events, its errors as ours.

Used by the `docker` backend's modules. It knows the engine's HTTP API and nothing of sandboxes. The socket is spoken
to directly by asyncio: calls can be cancelled, the one stream of events needs no thread, and no thread pool
stands between the loop and the engine. dockerd is the bottleneck, so heavy calls wait for their turn here.
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import re
import tarfile
from collections.abc import AsyncIterator, Coroutine, Iterable, Mapping
from pathlib import Path
from typing import Any

import httpx

from rock_env.errors import (
    DiskFull,
    InfraError,
    InvalidArgument,
    ResourceExhausted,
    Unavailable,
    of_full_disk,
)

__all__ = ["Engine", "EngineRefusal", "engine_socket", "finished"]

API = "v1.41"
"""The API of Docker 20.10; later engines still speak it."""
_HEAVY_CALLS = max(4, 2 * (os.cpu_count() or 1))
_CALL_S = 120.0
_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@-]{0,511}", re.ASCII)
"""A start waits for the disk; beyond this the engine hangs."""
_FULL = (
    "cannot allocate memory",
    "too many open files",
    "non-overlapping ipv4 address pool",
)
_RETRY_S = 10.0
_REMOVAL_S = 5.0


class EngineRefusal(InfraError):
    """The engine answered a call with an error; `status` is its HTTP status."""

    status = 0


def engine_socket() -> Path:
    """Return the path of the engine's socket: DOCKER_HOST, or where Docker has it by default."""
    host = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    scheme, _, path = host.partition("://")
    if scheme != "unix":
        raise InvalidArgument(
            f"DOCKER_HOST is {host!r}: sandboxes need an engine on this machine (unix://…), since their guests "
            "are reached through its file system. Unset DOCKER_HOST, or run the ROCK server where the engine is."
        )
    return Path(path)


class Engine:
    """One engine; close it with `close`."""

    def __init__(self, socket: Path | None = None) -> None:
        self.socket = engine_socket() if socket is None else socket
        self.turn = asyncio.Semaphore(_HEAVY_CALLS)
        """Held, by `heavy` and others, while the engine works on something that costs processes or disk."""
        self._client = httpx.AsyncClient(
            transport=httpx.AsyncHTTPTransport(uds=str(self.socket)),
            base_url=f"http://docker/{API}",
            timeout=_CALL_S,
        )

    async def close(self) -> None:
        """Close every connection; running calls fail."""
        await self._client.aclose()

    async def call(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> Any:
        """Make one call and return its JSON, None for an empty answer.

        Raise `EngineRefusal` with the engine's own words, `ResourceExhausted` when the machine is full, `Unavailable`
        when nobody answers.
        """
        content = await self._bytes(method, path, params=params, json=body)
        return json.loads(content) if content else None

    async def archive(self, container: str, path: str) -> bytes:
        """Return a file or folder of a container as a tar archive. Raise `EngineRefusal` if there is none."""
        return await self._bytes("GET", f"/containers/{container}/archive", params={"path": path})

    async def make_folder(self, container: str, path: str, *, mode: int) -> None:
        """Make a folder and its parents in a container; one that exists is left as it is."""
        try:
            await self._bytes("HEAD", f"/containers/{container}/archive", params={"path": path})
        except EngineRefusal as refusal:
            if refusal.status != 404:
                raise
        else:
            return
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as archive:
            entry = tarfile.TarInfo(path.strip("/"))
            entry.type, entry.mode = tarfile.DIRTYPE, mode
            archive.addfile(entry)
        where = {"path": "/"}
        async with self.turn:
            await self._bytes(
                "PUT", f"/containers/{container}/archive", params=where, content=packed.getvalue()
            )

    async def _bytes(self, method: str, path: str, **request: Any) -> bytes:
        try:
            response = await self._client.request(method, path, **request)
        except httpx.TimeoutException as error:
            raise InfraError(f"the Docker engine did not answer {method} {path} in {_CALL_S:g} s") from error
        except httpx.TransportError as error:
            raise self._unreachable(error) from error
        if response.is_success or response.status_code == 304:
            return response.content
        raise _refusal(response.status_code, response.text)

    async def heavy(self, method: str, path: str, **rest: Any) -> Any:
        """Make a call that costs the engine processes or disk, when it is its turn.

        A caller that is cancelled meanwhile is so when the engine has answered: what was made can then be removed.
        """
        async with self.turn:
            return await finished(self.call(method, path, **rest))

    async def events(self, filters: Mapping[str, Iterable[str]]) -> AsyncIterator[dict[str, Any]]:
        """Yield the engine's events from now on, until the connection ends. Raise `Unavailable`.

        The first item, empty, says that nothing that happens from here on is missed.
        """
        params = {"filters": json.dumps({name: list(values) for name, values in filters.items()})}
        try:
            async with self._client.stream("GET", "/events", params=params, timeout=None) as response:
                if not response.is_success:
                    raise _refusal(response.status_code, (await response.aread()).decode(errors="replace"))
                yield {}
                async for line in response.aiter_lines():
                    if line:
                        yield json.loads(line)
        except httpx.TransportError as error:
            raise self._unreachable(error) from error

    async def image(self, name: str) -> dict[str, Any]:
        """Describe an image that this machine has; images are never pulled. Raise `InvalidArgument` with the remedy."""
        if not _IMAGE.fullmatch(name) or ".." in name or "//" in name:  # it becomes a part of a URL
            raise InvalidArgument(
                f"{name[:200]!r} is no name of an image; expected one such as org/app:1 or sha256:<64 hex digits>"
            )
        try:
            described: dict[str, Any] = await self.call("GET", f"/images/{name}/json")
        except EngineRefusal as refusal:
            if refusal.status not in (400, 404):
                raise
            remedy = f"Get it with `docker pull {name}` or `docker load`, or build it (`docker build -t {name} …`)."
            if name.startswith("sha256:"):  # an id that we noted when it was built
                remedy = "It was removed: register its environment (`ale env register`) or its folder again."
            raise InvalidArgument(
                f"the Docker engine has no image {name!r}, and none is pulled by itself. {remedy}"
            ) from refusal
        return described

    async def containers(self, *labels: str) -> list[dict[str, Any]]:
        """List containers, also stopped ones, that carry all these labels (`name` or `name=value`)."""
        filters = json.dumps({"label": list(labels)})
        listed: list[dict[str, Any]] = await self.call(
            "GET", "/containers/json", params={"all": "1", "filters": filters}
        )
        return listed

    async def inspect(self, container: str) -> dict[str, Any] | None:
        """Describe a container by id or name; None if there is none."""
        try:
            described: dict[str, Any] = await self.call("GET", f"/containers/{container}/json")
        except EngineRefusal as refusal:
            if refusal.status == 404:
                return None
            raise
        return described

    async def remove(self, container: str) -> None:
        """Kill and remove a container and wait until it is gone. Nothing there: nothing is done."""
        try:
            await self.heavy("DELETE", f"/containers/{container}", params={"force": "1", "v": "1"})
        except EngineRefusal as refusal:
            if refusal.status == 409 or "is not running" in refusal.message:
                # It ended by itself just then, and the engine removes it already; else nobody but us would.
                await self._gone(container)
            elif refusal.status != 404:
                raise

    async def _gone(self, container: str) -> None:
        """Wait until a container that the engine removes is gone. The caller bounds it.

        A wait that begins in the moment of the removal may never end in some engines, so it is asked again.
        """
        while True:
            try:
                async with asyncio.timeout(_REMOVAL_S):
                    await self.call("POST", f"/containers/{container}/wait", params={"condition": "removed"})
                return
            except EngineRefusal as refusal:
                if refusal.status != 404:
                    raise
                return
            except TimeoutError:
                continue

    def _unreachable(self, error: Exception) -> Unavailable:
        return Unavailable(
            f"the Docker engine does not answer at {self.socket}: {error or type(error).__name__}. Start it "
            "(`systemctl start docker`, or `dockerd`), let this user open the socket (group `docker`), or set "
            "DOCKER_HOST; without an engine use the process backend (a sandbox without an image).",
            retry_after_s=1.0,
        )


async def finished(call: Coroutine[Any, Any, Any]) -> Any:
    """Await a call to its end, also when the caller is cancelled meanwhile."""
    task = asyncio.ensure_future(call)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.gather(task, return_exceptions=True)
        raise


def _refusal(status: int, text: str) -> EngineRefusal | ResourceExhausted | DiskFull:
    try:
        message = str(json.loads(text)["message"])
    except (ValueError, KeyError, TypeError):
        message = text.strip()[:500] or "no reason given"
    refusal = EngineRefusal(f"the Docker engine refused with status {status}: {message}")
    if full := of_full_disk(refusal):
        full.retry_after_s = _RETRY_S
        return full
    if any(word in message.lower() for word in _FULL):
        return ResourceExhausted(
            f"the machine of the Docker engine is full: {message}. Free "
            "memory or networks (`docker network prune`), then try again.",
            retry_after_s=_RETRY_S,
        )
    refusal.status = status
    return refusal
