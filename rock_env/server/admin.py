"""The gRPC AdminService: what an operator asks of a whole server.

Called by `server/app.py`. Who may call it is the interceptor's to decide; it changes nothing.
"""

from __future__ import annotations

import time
from typing import Any

import grpc

from rock_env.proto.v1 import admin_pb2 as pb
from rock_env.proto.v1 import admin_pb2_grpc
from rock_env.server.core import EnvServiceCore

__all__ = ["SERVICE", "add_admin_service"]

SERVICE = pb.DESCRIPTOR.services_by_name["AdminService"].full_name


class _AdminService(admin_pb2_grpc.AdminServiceServicer):  # type: ignore[misc]  # generated
    def __init__(self, core: EnvServiceCore) -> None:
        self._core = core
        self._started = time.monotonic()

    async def Capacity(self, request: pb.CapacityRequest, context: Any) -> pb.CapacityResponse:  # noqa: N802
        """Count what runs here."""
        reply = self._core.load()
        reply.uptime_s = time.monotonic() - self._started
        return reply


def add_admin_service(server: grpc.aio.Server, core: EnvServiceCore) -> None:
    """Register the AdminService on a server that has not started yet."""
    admin_pb2_grpc.add_AdminServiceServicer_to_server(_AdminService(core), server)
