"""How one server takes part among those that share its store; nothing to do where the store is its own."""

from __future__ import annotations

import os
import secrets
from collections.abc import AsyncIterator, Collection
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import grpc

from rock_env.errors import InvalidArgument
from rock_env.server.envs.core import claim_of
from rock_env.server.replicas.folder_id import folder_id
from rock_env.server.sandboxes.core import SandboxCore
from rock_env.server.sandboxes.ownership import Alone, Ownership
from rock_env.store.address import is_postgres
from rock_env.store.base import SandboxStore
from rock_env.store.sqlite.records import SqliteStore
from rock_env.threads import for_life

if TYPE_CHECKING:
    from rock_env.server.replicas.forward import ForwardInterceptor
    from rock_env.server.replicas.member import Replica

__all__ = ["Sharing", "sharing"]

_LONGEST_SOCKET_PATH = 107
_OWNER_ONLY = 0o177


class Sharing:
    """What the parts of a server need of it; made by `sharing`."""

    def __init__(
        self,
        replica: Replica | None = None,
        *,
        forward: ForwardInterceptor | None = None,
        socket: str = "",
        environments: str,
    ) -> None:
        self._replica = replica
        self.environments = environments
        """How the ids of this server's environments begin: no other server's do."""
        self._socket = socket
        self.forward = forward
        """To be put behind the guard at the door, which asks it about the passes of other replicas."""
        self.ownership: Ownership = Alone() if replica is None else replica

    def bind(self, server: grpc.aio.Server) -> None:
        """Let the other replicas reach a server that has not started yet."""
        if self._socket:
            former = os.umask(_OWNER_ONLY)
            try:
                server.add_insecure_port(f"unix:{self._socket}")
            finally:
                os.umask(former)

    def serving(self, core: SandboxCore) -> AbstractAsyncContextManager[None]:
        """Hear of the other replicas and take over from them, for a core that has been entered."""
        return nullcontext() if self._replica is None else self._replica.serve(core)

    def forget(self, keys: Collection[str]) -> None:
        """Note that the environments that were made with these keys are closed, each with its tenant's name before it."""
        if self._replica is not None and keys:
            self._replica.unclaim([claim_of(key) for key in keys])

    async def hand_over(self, within_s: float) -> int:
        """Let other replicas have the boxes that no call uses; return how many went."""
        return 0 if self._replica is None else await self._replica.hand_over(within_s)


@asynccontextmanager
async def sharing(
    store: SandboxStore, where: str, *, folder: Path | None, node: str, lease_s: float
) -> AsyncIterator[Sharing]:
    """Be one of those who share the store that `where` named, inside the block.

    Other replicas of this node reach this one by a socket in `folder`, which is their common one. Raise
    `FailedPrecondition` if another folder is the node's.
    """
    # An id of an earlier server is unknown to this one, and never another environment.
    environments = f"e{secrets.token_hex(4)}"
    mark = "" if folder is None else await for_life(folder_id, folder)
    if not is_postgres(where):
        assert isinstance(store, SqliteStore)
        await store.register(node=node, folder=mark)
        yield Sharing(environments=environments)
        return
    # They need asyncpg, which only a PostgreSQL store does.
    from rock_env.server.replicas.forward import ForwardInterceptor
    from rock_env.server.replicas.member import Replica, new_id
    from rock_env.store.postgres.members import Members
    from rock_env.store.postgres.records import PostgresStore

    assert isinstance(store, PostgresStore)
    assert folder is not None  # ServerOptions.check asks for it
    own_id = new_id(node)
    path = _socket(folder, own_id)
    before = _sockets(path.parent)
    living = {member.address for member in (await Members(store).all()).values()}
    for left in before:
        if f"unix://{left}" not in living:
            left.unlink(missing_ok=True)  # of a replica that was killed
    secret = await Members(store).secret()
    try:
        async with Replica.joined(
            store,
            own_id=own_id,
            node=node,
            folder=mark,
            address=f"unix://{path}",
            environments=environments,
            lease_s=lease_s,
        ) as replica:
            forward = ForwardInterceptor(replica, secret)
            try:
                yield Sharing(replica, forward=forward, socket=str(path), environments=environments)
            finally:
                await forward.close()
    finally:
        with suppress(OSError):
            path.unlink(missing_ok=True)


def _socket(folder: Path, own_id: str) -> Path:
    peers = folder.absolute() / "peers"
    peers.mkdir(mode=0o700, exist_ok=True)
    path = peers / f"{own_id.rpartition(':')[2]}.sock"
    if len(os.fsencode(path)) > _LONGEST_SOCKET_PATH:
        raise InvalidArgument(
            f"the folder {str(folder)!r} is too deep for a unix socket: {path} has more than {_LONGEST_SOCKET_PATH} "
            "bytes. Name a shorter one."
        )
    return path


def _sockets(peers: Path) -> list[Path]:
    return list(peers.glob("*.sock"))
