"""How one server takes part among those that share its store; nothing to do where the store is its own."""

from __future__ import annotations

import asyncio
import os
import secrets
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import grpc

from rock_env.errors import InvalidArgument
from rock_env.server.envs.branches import Borrowed, Branches
from rock_env.server.envs.keys import claim_of
from rock_env.server.envs.shelf import EnvShelf, OwnFolder
from rock_env.server.options import ServerOptions
from rock_env.server.replicas.folder_id import folder_id
from rock_env.server.sandboxes.core import SandboxCore
from rock_env.server.sandboxes.ownership import Alone, Ownership
from rock_env.store.address import is_postgres
from rock_env.store.base import SandboxStore
from rock_env.store.sqlite.records import SqliteStore
from rock_env.threads import for_life
from rock_env.wire.channel import target
from rock_env.wire.listening import bind

if TYPE_CHECKING:
    from rock_env.server.replicas.forward import ForwardInterceptor
    from rock_env.server.replicas.images import SharedImages
    from rock_env.server.replicas.member import Replica
    from rock_env.server.replicas.pools import SharedPools

__all__ = ["Sharing", "StoreSecret", "sharing"]

_LONGEST_SOCKET_PATH = 107


class Sharing:
    """What the parts of a server need of it; made by `sharing`."""

    def __init__(
        self,
        replica: Replica | None = None,
        *,
        forward: ForwardInterceptor | None = None,
        environments: str,
    ) -> None:
        self._replica = replica
        self.environments = environments
        """How the ids of this server's environments begin: no other server's do."""
        self.door: tuple[str, grpc.ServerCredentials | None] | None = None
        """Where the other replicas reach this server, and what lets them in."""
        self.forward = forward
        """To be put behind the guard at the door, which asks it about the passes of other replicas."""
        self.ownership: Ownership = Alone() if replica is None else replica
        self.shelf: EnvShelf = OwnFolder() if replica is None else replica.pushed
        self.borrow: Callable[[str], Awaitable[Borrowed | None]] | None = None
        """Asks the other replicas for a checkpoint of theirs."""
        self.images: SharedImages | None = None
        """The names of images that the store has; None: each server has its own."""
        self.pools: SharedPools | None = None
        """The sizes of warm pools that the store has; None: each server has its own."""
        self.secret = b""
        """What all servers of a shared store have and nobody else; each use derives its own from it."""

    def bind(self, server: grpc.aio.Server, branches: Branches) -> None:
        """Let the other replicas reach a server that has not started yet, and its checkpoints."""
        if self.door is not None:
            from rock_env.server.replicas.borrowing import lend_to_peers

            lend_to_peers(server, branches)
            bind(server, target(self.door[0]), self.door[1])

    def serving(self, core: SandboxCore) -> AbstractAsyncContextManager[None]:
        """Hear of the other replicas and take over from them, for a core that has been entered."""
        return nullcontext() if self._replica is None else self._replica.serve(core)

    def hear(self, makes: Callable[[str], bool]) -> None:
        """Learn who tells whether an environment is here, or is being made, with a key and its tenant's name before it."""
        if self._replica is not None:
            self._replica.makes = makes

    def forget(self, keys: Collection[str]) -> None:
        """Note that the environments that were made with these keys are closed, each with its tenant's name before it."""
        if self._replica is not None and keys:
            self._replica.unclaim([claim_of(key) for key in keys])

    async def hand_over(self, within_s: float) -> int:
        """Let other replicas have the boxes that no call uses; return how many went."""
        return 0 if self._replica is None else await self._replica.hand_over(within_s)


class StoreSecret:
    """The secret of a shared store for those who are made before it is opened; waits for it when called."""

    def __init__(self) -> None:
        self._told: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def __call__(self) -> bytes:
        """Return the secret, once it is known."""
        return await asyncio.shield(self._told)

    def tell(self, secret: bytes) -> None:
        """Make the secret known."""
        self._told.set_result(secret)


@asynccontextmanager
async def sharing(
    store: SandboxStore, options: ServerOptions, where: str, sites: Collection[str] = ()
) -> AsyncIterator[Sharing]:
    """Be one of those who share the store that `where` named, inside the block; `sites` are those of its backends.

    Other replicas reach this one at the address of `--peers`, else by a socket in the state folder, which is the common
    one of this node's. Raise `FailedPrecondition` if another folder is the node's.
    """
    # An id of an earlier server is unknown to this one, and never another environment.
    environments = f"e{secrets.token_hex(4)}"
    folder = Path(options.state) if options.state else None
    mark = "" if folder is None else await for_life(folder_id, folder)
    if not is_postgres(where):
        assert isinstance(store, SqliteStore)
        await store.register(node=options.node, folder=mark)
        yield Sharing(environments=environments)
        return
    # They need asyncpg, which only a PostgreSQL store does.
    from rock_env.server.replicas.borrowing import Borrowing
    from rock_env.server.replicas.certificates import identity
    from rock_env.server.replicas.forward import ForwardInterceptor
    from rock_env.server.replicas.images import SharedImages
    from rock_env.server.replicas.member import Replica
    from rock_env.server.replicas.pools import SharedPools
    from rock_env.server.replicas.seats import Seat, new_id
    from rock_env.store.postgres.members import Members
    from rock_env.store.postgres.records import PostgresStore

    assert isinstance(store, PostgresStore)
    members = Members(store)
    secret = await members.secret()
    own_id = new_id(options.node)
    own = await identity(members, environments) if options.peers else None
    living = {member.address for member in (await members.all()).values()}
    async with _door(folder, own_id, options.peers, living) as (address, witnesses):
        seat = Seat(
            own_id=own_id,
            node=options.node,
            folder=mark,
            address=address,
            witnesses=witnesses,
            environments=environments,
            sites=frozenset(sites),
            lease_s=options.replica_lease_s,
        )
        async with Replica.joined(store, seat) as replica, SharedPools(store, replica) as pools:
            forward = ForwardInterceptor(replica, secret, own)
            try:
                shared = Sharing(replica, forward=forward, environments=environments)
                shared.door = (address, None if own is None else own.server())
                shared.borrow = Borrowing(forward)
                shared.images = SharedImages(store, node=options.node, maker=environments)
                shared.pools = pools
                shared.secret = secret
                yield shared
            finally:
                await forward.close()


@asynccontextmanager
async def _door(
    folder: Path | None, own_id: str, peers: str, living: Collection[str]
) -> AsyncIterator[tuple[str, Path]]:
    """Yield where other replicas are to reach this one, and the folder of its node's locks."""
    if folder is None:
        with tempfile.TemporaryDirectory(prefix="rock-") as alone:
            yield f"grpcs://{peers}", Path(alone)
        return
    path = _socket(folder, own_id)
    for left in _sockets(path.parent):
        if f"unix://{left}" not in living:
            left.unlink(missing_ok=True)  # of a replica that was killed
    try:
        yield f"grpcs://{peers}" if peers else f"unix://{path}", path.parent
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
