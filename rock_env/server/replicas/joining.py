"""How a server joins those that share a PostgreSQL store: its seat, its door for them, and what it keeps with them.

Used by `sharing`, which imports it only for such a store: it needs asyncpg.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import grpc

from rock_env.errors import InvalidArgument
from rock_env.server.envs.branches import Branches
from rock_env.server.options import ServerOptions
from rock_env.server.replicas.borrowing import Borrowing, lend_to_peers
from rock_env.server.replicas.forward import ForwardInterceptor
from rock_env.server.replicas.images import SharedImages
from rock_env.server.replicas.member import Replica
from rock_env.server.replicas.pools import SharedPools
from rock_env.server.replicas.seats import Seat, new_id
from rock_env.server.replicas.trust.certificates import identity
from rock_env.store.base import SandboxStore
from rock_env.store.postgres.members import Members
from rock_env.store.postgres.records import PostgresStore
from rock_env.wire.channel import target
from rock_env.wire.listening import bind

__all__ = ["Joined", "joined"]

_LONGEST_SOCKET_PATH = 107


@dataclass(frozen=True, slots=True)
class Joined:
    """A member, and what it shares with the others."""

    replica: Replica
    forward: ForwardInterceptor
    address: str
    """Where the other replicas reach this server."""
    credentials: grpc.ServerCredentials | None
    """What lets them in."""
    borrow: Borrowing
    images: SharedImages
    pools: SharedPools
    secret: bytes

    def bind(self, server: grpc.aio.Server, branches: Branches) -> None:
        """Let the other replicas reach a server that has not started yet, and its checkpoints."""
        lend_to_peers(server, branches)
        bind(server, target(self.address), self.credentials)


@asynccontextmanager
async def joined(
    store: SandboxStore,
    options: ServerOptions,
    environments: str,
    folder: Path | None,
    mark: str,
    sites: Collection[str],
) -> AsyncIterator[Joined]:
    """Be a member inside the block; `mark` is the id of the state folder. See `sharing`."""
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
            images = SharedImages(store, node=options.node, maker=environments)
            credentials = None if own is None else own.server()
            try:
                yield Joined(
                    replica, forward, address, credentials, Borrowing(forward), images, pools, secret
                )
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
