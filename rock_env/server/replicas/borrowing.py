"""A checkpoint that another replica keeps, for an environment of this one that is to go on from it.

The state goes from server to server and never through a client: workers believe what it says. The call is admitted by a
pass like a forwarded one, so it is made for one tenant, who gets that tenant's own checkpoints.
"""

from __future__ import annotations

from typing import Any

import grpc

from rock_env.errors import NotFound, RockError, Unavailable
from rock_env.security.auth import current_tenant
from rock_env.server.calls import fail
from rock_env.server.envs.branches import Borrowed, Branches
from rock_env.server.envs.keys import prefix_of
from rock_env.server.replicas.carrying import Carrier
from rock_env.server.replicas.trust.passes import HEADER, PEERS

__all__ = ["Borrowing", "lend_to_peers"]

_METHOD = "Checkpoint"
_PATH = f"/{PEERS}/{_METHOD}"
_LONGEST_ID = 100
_WAIT_S = 30.0


class Borrowing:
    """Asks the replica whose checkpoint it is."""

    def __init__(self, carrier: Carrier) -> None:
        self._carrier = carrier

    async def __call__(self, checkpoint_id: str) -> Borrowed | None:
        """Return a checkpoint's state; None: no replica that lives has it. Raise `Unavailable`."""
        prefix = prefix_of(checkpoint_id)
        member = (await self._carrier.replica.homes({prefix}))[prefix]
        channel = None if member is None else await self._carrier.reach(member)
        if member is None or channel is None:
            return None
        try:
            state = await channel.unary_unary(_PATH)(
                checkpoint_id.encode(), metadata=self._carrier.signed(member, _PATH), timeout=_WAIT_S
            )
        except grpc.aio.AioRpcError as failure:
            if failure.code() is grpc.StatusCode.NOT_FOUND:
                return None
            raise Unavailable(
                f"replica {member.id}, which keeps the checkpoint, did not give it: {failure.details()}. Ask again.",
                retry_after_s=1.0,
            ) from failure
        replica = self._carrier.replica
        beside = (member.node, member.folder) == (replica.node, replica.folder)
        return Borrowed(state, with_files=beside)


def lend_to_peers(server: grpc.aio.Server, branches: Branches) -> None:
    """Let other replicas borrow the checkpoints of a server that has not started yet."""

    async def checkpoint(request: bytes, context: Any) -> bytes:
        try:
            if not any(key == HEADER for key, _ in context.invocation_metadata() or ()):
                raise NotFound(f"{PEERS} is for servers that share this one's store.")
            return branches.lend(request[:_LONGEST_ID].decode(errors="replace"), current_tenant())
        except RockError as error:
            return await fail(context, error)

    handler = grpc.unary_unary_rpc_method_handler(checkpoint)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(PEERS, {_METHOD: handler}),))
