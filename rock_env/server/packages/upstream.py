"""Fetching from upstream: whole answers within bounds, and files that are what their index says.

Used by `store`. It follows no redirect, takes no cookie and no compressed answer, and hashes and writes in threads.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from http.cookiejar import CookieJar, DefaultCookiePolicy
from pathlib import Path
from typing import Any, TypeVar

import httpx

from rock_env.errors import InfraError, NotFound, Unavailable
from rock_env.server.packages.bounds import FetchLimits
from rock_env.server.packages.index import Wanted

__all__ = ["Upstream", "aside"]

_THREADS = ThreadPoolExecutor(4, thread_name_prefix="rock-packages")
_BLOCK_BYTES = 1 << 20
_CONNECT_S = 10.0
_CONNECTIONS = 32
_GONE = (404, 410)

T = TypeVar("T")
Count = Callable[[int], None]


async def aside(act: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """Return what `act` returns, in a thread of the mirror's."""
    return await asyncio.get_running_loop().run_in_executor(_THREADS, partial(act, *args, **kwargs))


class Upstream:
    """Enter it on the event loop."""

    def __init__(self, limits: FetchLimits) -> None:
        self._limits = limits
        self._http = httpx.AsyncClient(
            follow_redirects=False,
            timeout=httpx.Timeout(limits.stall_s, connect=_CONNECT_S, pool=limits.fetch_s),
            limits=httpx.Limits(max_connections=_CONNECTIONS),
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=())),
            headers={"user-agent": "ale-rock", "accept-encoding": "identity"},
        )

    async def __aenter__(self) -> Upstream:
        await self._http.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def read(self, url: str, *, accept: str, count: Count) -> bytes:
        """Return a whole answer. Raise `NotFound`, `Unavailable` or `InfraError`."""
        content = bytearray()
        async with self._asked(url, accept, self._limits.index_bytes) as blocks:
            async for block in blocks:
                count(len(block))
                content += block
        return bytes(content)

    async def download(self, wanted: Wanted, into: Path, *, count: Count) -> None:
        """Write a file and check it. Raise as `read` does, and `InfraError` for one that is not what its index says."""
        most = self._limits.file_bytes if wanted.size_bytes is None else wanted.size_bytes
        if most > self._limits.file_bytes:
            raise InfraError(f"{wanted.url} has {most} bytes, more than the mirror takes")
        async with self._asked(wanted.url, "*/*", most) as blocks:
            sink = await aside(_Sink, into, wanted.algorithm)
            try:
                async for block in blocks:
                    count(len(block))
                    await aside(sink.write, block)
            finally:
                await aside(sink.close)
        if wanted.size_bytes not in (None, sink.size_bytes) or sink.digest != wanted.digest:
            raise InfraError(
                f"{wanted.url} is not what its index lists, and was not kept: got {sink.size_bytes} bytes with "
                f"{wanted.algorithm} {sink.digest}, expected {wanted.digest}"
            )

    @asynccontextmanager
    async def _asked(self, url: str, accept: str, most: int) -> AsyncIterator[AsyncIterator[bytes]]:
        try:
            async with (
                asyncio.timeout(self._limits.fetch_s),
                self._http.stream("GET", url, headers={"accept": accept}) as reply,
            ):
                _check(reply, url, most)
                yield _blocks(reply, url, most)
        except TimeoutError as error:
            raise Unavailable(f"upstream took too long for {url}") from error
        except httpx.InvalidURL as error:
            raise InfraError(f"upstream's address {url!r} cannot be asked: {error}") from error
        except httpx.HTTPError as error:  # a body that ends early among them
            raise Unavailable(f"upstream failed at {url}: {type(error).__name__}: {error}") from error


async def _blocks(reply: httpx.Response, url: str, most: int) -> AsyncIterator[bytes]:
    got = 0
    async for block in reply.aiter_raw(_BLOCK_BYTES):
        got += len(block)
        if got > most:
            raise _too_large(url, most)
        yield block


def _check(reply: httpx.Response, url: str, most: int) -> None:
    """Raise unless this is an answer whose end will be seen, of a size that may be."""
    headers = reply.headers
    if reply.status_code in _GONE:
        raise NotFound(f"upstream has no {url}")
    if reply.status_code != 200:
        kind = InfraError if reply.status_code < 400 else Unavailable  # a redirect leads who knows where
        raise kind(f"upstream answered {reply.status_code} for {url}")
    if headers.get("content-encoding", "identity") != "identity":
        raise InfraError(f"upstream answered {url} compressed, which was not asked for")
    said = headers.get("content-length", "")
    if said.isascii() and said.isdigit():
        if int(said[:20]) > most:
            raise _too_large(url, most)
    elif "chunked" not in headers.get("transfer-encoding", ""):
        raise InfraError(f"upstream's answer for {url} does not say where it ends")


def _too_large(url: str, most: int) -> InfraError:
    return InfraError(f"upstream's answer for {url} is larger than {most} bytes, and was not kept")


class _Sink:
    """A file that is being written, in threads one after the other."""

    def __init__(self, path: Path, algorithm: str) -> None:
        self._file = path.open("xb")
        self._hash = hashlib.new(algorithm)
        self.size_bytes = 0

    def write(self, block: bytes) -> None:
        self._hash.update(block)
        self._file.write(block)
        self.size_bytes += len(block)

    def close(self) -> None:
        """Put it on the disk for good: after a power cut a name in the cache must not stand for an empty file."""
        try:
            self._file.flush()
            os.fsync(self._file.fileno())
        finally:
            self._file.close()

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()
