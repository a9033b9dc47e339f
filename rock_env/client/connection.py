"""A connection to one of a server's services that is no part of `Client`: entered, asked, closed.

The base of the clients of the admin and the registry service. It sends nothing twice: an operator asks for the present
state, and a build is followed by its id.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Self

import grpc

from rock_env.client.credentials import Credentials
from rock_env.client.installations import resolved
from rock_env.client.retry import rock_error

__all__ = ["ServiceConnection"]


class ServiceConnection:
    """Calls `stub_class` at `address`, or a context's, each for up to `timeout_s`, None: without bound.

    `credentials` None takes what the environment holds.
    """

    def __init__(
        self, address: str, stub_class: Any, *, credentials: Credentials | None, timeout_s: float | None
    ) -> None:
        self._address, self._credentials = resolved(address, credentials)
        self._stub_class = stub_class
        self._timeout_s = timeout_s
        self._channel: Any = None
        self._stub: Any = None

    async def __aenter__(self) -> Self:
        self._channel = self._credentials.channel(self._address)
        self._stub = self._stub_class(self._channel)
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._channel.close()

    def _call(self, rpc: str, request: Any, *, timeout_s: float | None = None) -> Any:
        """Start a call with the credentials; read it inside `_asking`."""
        timeout_s = self._timeout_s if timeout_s is None else timeout_s
        return getattr(self._stub, rpc)(request, timeout=timeout_s, metadata=self._credentials.metadata())

    async def _ask(self, rpc: str, request: Any, *, timeout_s: float | None = None) -> Any:
        """Send one request and return its reply. Raise its `RockError`."""
        async with self._asking():
            return await self._call(rpc, request, timeout_s=timeout_s)

    @asynccontextmanager
    async def _asking(self) -> AsyncIterator[None]:
        """Raise the `RockError` that a failed call stands for."""
        try:
            yield
        except grpc.aio.AioRpcError as failure:
            raise rock_error(failure, self._address)[0] from failure
