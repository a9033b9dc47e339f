"""What an operator asks of a server: is it up, and how loaded is it.

Called by `ale rock status`. One connection for both questions, no retries: the present state is the answer.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Self

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from rock_env.client.credentials import Credentials
from rock_env.client.retry import rock_error
from rock_env.proto.v1 import admin_pb2 as pb
from rock_env.proto.v1 import admin_pb2_grpc

__all__ = ["AdminClient", "Capacity"]


@dataclass(frozen=True, slots=True)
class Capacity:
    """What runs on a server, of all tenants."""

    envs_in_workers: int
    envs_in_sandboxes: int
    workers: int
    """Env-host processes that run."""
    max_workers: int
    """How many there are when all are needed."""
    uptime_s: float


class AdminClient:
    """A connection for questions about the server at `address`; each may take `timeout_s`."""

    def __init__(
        self, address: str, *, credentials: Credentials | None = None, timeout_s: float = 10.0
    ) -> None:
        self._address = address
        self._credentials = Credentials.from_environment() if credentials is None else credentials
        self._timeout_s = timeout_s
        self._channel: Any = None

    async def __aenter__(self) -> Self:
        self._channel = self._credentials.channel(self._address)
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._channel.close()

    async def serving(self) -> bool:
        """Return whether the server takes calls; one that drains does not. Raise `RockError`. Needs no token."""
        stub = health_pb2_grpc.HealthStub(self._channel)
        async with self._asking():
            reply = await stub.Check(health_pb2.HealthCheckRequest(), timeout=self._timeout_s)
        return bool(reply.status == health_pb2.HealthCheckResponse.SERVING)

    async def capacity(self) -> Capacity:
        """Return the server's load. Raise `Unauthenticated` or `PermissionDenied` without the scope `admin`."""
        stub = admin_pb2_grpc.AdminServiceStub(self._channel)
        async with self._asking():
            reply = await stub.Capacity(
                pb.CapacityRequest(), timeout=self._timeout_s, metadata=self._credentials.metadata()
            )
        return Capacity(
            reply.envs_in_workers, reply.envs_in_sandboxes, reply.workers, reply.max_workers, reply.uptime_s
        )

    @asynccontextmanager
    async def _asking(self) -> AsyncIterator[None]:
        try:
            yield
        except grpc.aio.AioRpcError as failure:
            raise rock_error(failure, self._address)[0] from failure
