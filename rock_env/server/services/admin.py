"""The gRPC AdminService: what an operator asks of a whole server.

Who may call it is the interceptor's to decide; it changes nothing but what a census with `sweep` destroys.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import grpc

from rock_env.errors import InvalidArgument
from rock_env.lifecycle import SandboxRecord
from rock_env.proto.v1 import admin_pb2 as pb
from rock_env.proto.v1 import admin_pb2_grpc
from rock_env.security.auth import acting_for
from rock_env.server.calls import fail
from rock_env.server.envs.core import EnvServiceCore
from rock_env.server.envs.shelf import EnvShelf
from rock_env.server.sandboxes.core import LIVE, SandboxCore
from rock_env.server.services.places import PlaceCalls, Places
from rock_env.server.services.registered import RegisteredCalls
from rock_env.store.base import Query
from rock_env.wire.inventory import census_message
from rock_env.wire.sandboxes import span

__all__ = ["SERVICE", "add_admin_service"]

SERVICE = pb.DESCRIPTOR.services_by_name["AdminService"].full_name


class _AdminService(PlaceCalls, RegisteredCalls, admin_pb2_grpc.AdminServiceServicer):  # type: ignore[misc]  # generated
    def __init__(
        self,
        core: EnvServiceCore,
        sandboxes: SandboxCore,
        *,
        drain: Callable[[float | None], None],
        guarded: bool,
    ) -> None:
        self._drain = drain
        self._guarded = guarded
        self._core = core
        self._sandboxes = sandboxes
        self._started = time.monotonic()

    async def Capacity(self, request: pb.CapacityRequest, context: Any) -> pb.CapacityResponse:  # noqa: N802
        """Count what runs here."""
        reply = self._core.load()
        reply.uptime_s = time.monotonic() - self._started
        return reply

    async def Census(self, request: pb.CensusRequest, context: Any) -> pb.CensusResponse:  # noqa: N802
        """Compare what exists on the node with what is recorded."""
        nobodys = await self._nobodys(sweep=request.sweep)
        counted = await self._sandboxes.census(sweep=request.sweep)
        found = [
            replace(
                census,
                orphans={
                    **census.orphans,
                    **{
                        each.box_id or each.id: f"sandbox {each.id}, made before the server had tokens"
                        for each in nobodys
                        if each.backend == census.backend
                    },
                },
            )
            for census in counted
        ]
        return pb.CensusResponse(backends=map(census_message, found))

    async def _nobodys(self, *, sweep: bool) -> Sequence[SandboxRecord]:
        """Return the sandboxes that were made when nobody needed a token, and that no token opens now."""
        if not self._guarded:
            return ()
        with acting_for(""):
            found = await self._sandboxes.find(Query(states=LIVE))
            for each in found if sweep else ():
                await self._sandboxes.delete(each.id)
        return found

    async def SetQuota(self, request: pb.SetQuotaRequest, context: Any) -> pb.TenantQuota:  # noqa: N802
        """Change what one tenant may hold."""
        if self._guarded and not request.tenant:
            await fail(
                context, InvalidArgument("tenant is empty: expected the name of a tenant with a token")
            )
        return await super().SetQuota(request, context)

    async def Drain(self, request: pb.DrainRequest, context: Any) -> pb.DrainResponse:  # noqa: N802
        """Begin to end the server, and say what becomes of its sandboxes."""
        try:
            within_s = span(request.within, "`within`") if request.HasField("within") else None
        except InvalidArgument as error:
            await fail(context, error)
        held = [each.record.lasting for each in self._sandboxes.ledger.held.values()]
        self._drain(within_s)
        return pb.DrainResponse(durable=sum(held), ending=len(held) - sum(held))


def add_admin_service(
    server: grpc.aio.Server,
    core: EnvServiceCore,
    sandboxes: SandboxCore,
    places: Places,
    shelf: EnvShelf,
    *,
    drain: Callable[[float | None], None],
    guarded: bool,
) -> None:
    """Register the AdminService on a server that has not started yet; `drain` makes the server end gracefully.

    Where it is `guarded` by tokens, what was made without them is nobody's.
    """
    service = _AdminService(core, sandboxes, drain=drain, guarded=guarded)
    service.places = places
    service.shelf = shelf
    admin_pb2_grpc.add_AdminServiceServicer_to_server(service, server)
