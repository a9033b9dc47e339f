"""What an operator asks of a server: is it up, and how loaded is it.

One connection for both questions, no retries: the present state is the answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from grpc_health.v1 import health_pb2, health_pb2_grpc

from rock_env.client.connection import ServiceConnection
from rock_env.client.credentials import Credentials
from rock_env.inventory import BackendCensus
from rock_env.proto.v1 import admin_pb2 as pb
from rock_env.proto.v1 import admin_pb2_grpc
from rock_env.wire.inventory import backend_census

_CENSUS_S = 120.0
"""Engines under load take their time, and a sweep may have much to remove."""

__all__ = ["AdminClient", "Capacity", "Drained"]


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


@dataclass(frozen=True, slots=True)
class Drained:
    """What becomes of the sandboxes of a server that drains."""

    durable: int
    """These live on, with another replica or until the next start."""
    ending: int
    """These end with the server."""


class AdminClient(ServiceConnection):
    """A connection for questions about the server at `address`; each may take `timeout_s`."""

    def __init__(
        self, address: str, *, credentials: Credentials | None = None, timeout_s: float = 10.0
    ) -> None:
        super().__init__(
            address, admin_pb2_grpc.AdminServiceStub, credentials=credentials, timeout_s=timeout_s
        )

    async def serving(self) -> bool:
        """Return whether the server takes calls; one that drains does not. Raise `RockError`. Needs no token."""
        stub = health_pb2_grpc.HealthStub(self._channel)
        async with self._asking():
            reply = await stub.Check(health_pb2.HealthCheckRequest(), timeout=self._timeout_s)
        return bool(reply.status == health_pb2.HealthCheckResponse.SERVING)

    async def capacity(self) -> Capacity:
        """Return the server's load. Raise `Unauthenticated` or `PermissionDenied` without the scope `admin`."""
        reply = await self._ask("Capacity", pb.CapacityRequest())
        return Capacity(
            reply.envs_in_workers, reply.envs_in_sandboxes, reply.workers, reply.max_workers, reply.uptime_s
        )

    async def census(self, *, sweep: bool = False) -> list[BackendCensus]:
        """Count what is on the server's node; with `sweep` it then destroys what nothing needs.

        Raise `Unauthenticated` or `PermissionDenied` without the scope `admin`, `InfraError` with what a sweep could not
        destroy, and why; the rest is gone then.
        """
        reply = await self._ask("Census", pb.CensusRequest(sweep=sweep), timeout_s=_CENSUS_S)
        return [backend_census(one) for one in reply.backends]

    async def drain(self, *, within_s: float | None = None) -> Drained:
        """Make the server end gracefully, and return at once; None: within the time it was started with.

        Raise `Unauthenticated` or `PermissionDenied` without the scope `admin`.
        """
        request = pb.DrainRequest()
        if within_s is not None:
            request.within.FromTimedelta(timedelta(seconds=within_s))
        reply = await self._ask("Drain", request)
        return Drained(reply.durable, reply.ending)
