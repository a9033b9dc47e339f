"""The AdminService's calls on environments that an operator pushes to a server.

It converts and checks. Who keeps them is the server's folder, or the store that it shares with others.
"""

from __future__ import annotations

from typing import Any

from rock_env import plugins
from rock_env.errors import InvalidArgument, nearest
from rock_env.proto.v1 import admin_pb2 as pb
from rock_env.server.calls import Context, guarded
from rock_env.server.envs.shelf import EnvShelf
from rock_env.server.parsing import off_loop
from rock_env.tasksets import registered
from rock_env.tasksets.registered import Registration
from rock_env.wire.pushed import unpack
from rock_env.wire.sandboxes import moment

__all__ = ["RegisteredCalls"]


class RegisteredCalls:
    """The handlers as gRPC calls them; the AdminService inherits them."""

    shelf: EnvShelf

    async def PutEnv(self, request: pb.PutEnvRequest, context: Any) -> pb.PutEnvResponse:  # noqa: N802
        """Keep an environment."""
        return await guarded(self._put_env)(request, context)

    async def RemoveEnv(self, request: pb.RemoveEnvRequest, context: Any) -> pb.RemoveEnvResponse:  # noqa: N802
        """Forget an environment."""
        return await guarded(self._remove_env)(request, context)

    async def _put_env(self, request: pb.PutEnvRequest, _: Context) -> pb.PutEnvResponse:
        record = Registration(
            name=request.env.name,
            digest=request.env.digest,
            source=request.env.source,
            registered_at=moment(request.env.registered_at, "registered_at"),
            tasks=request.env.tasks,
            images=tuple(request.env.images),
        )
        registered.check_name(record.name)
        if record.name in plugins.names("ale.envs"):
            raise InvalidArgument(
                f"an environment called {record.name!r} is installed on the server. Register yours under another name "
                "(--name) and push that."
            )
        await self.shelf.put(record, await off_loop(unpack, request.tasks))
        return pb.PutEnvResponse()

    async def _remove_env(self, request: pb.RemoveEnvRequest, _: Context) -> pb.RemoveEnvResponse:
        if not await self.shelf.remove(request.name):
            raise nearest("pushed environment", request.name[:80], registered.shared_names())
        return pb.RemoveEnvResponse()
