"""How one server takes part among those that share its store; nothing to do where the store is its own."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import grpc

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

if TYPE_CHECKING:
    from rock_env.server.replicas.joining import Joined

__all__ = ["Sharing", "StoreSecret", "sharing"]


class Sharing:
    """What the parts of a server need of it; made by `sharing`."""

    def __init__(self, joined: Joined | None = None, *, environments: str) -> None:
        self._joined = joined
        self._replica = None if joined is None else joined.replica
        self.environments = environments
        """How the ids of this server's environments begin: no other server's do."""
        self.forward = None if joined is None else joined.forward
        """To be put behind the guard at the door, which asks it about the passes of other replicas."""
        self.ownership: Ownership = Alone() if joined is None else joined.replica
        self.shelf: EnvShelf = OwnFolder() if joined is None else joined.replica.pushed
        self.borrow: Callable[[str], Awaitable[Borrowed | None]] | None = (
            None if joined is None else joined.borrow
        )
        """Asks the other replicas for a checkpoint of theirs."""
        self.images = None if joined is None else joined.images
        """The names of images that the store has; None: each server has its own."""
        self.pools = None if joined is None else joined.pools
        """The sizes of warm pools that the store has; None: each server has its own."""
        self.secret = b"" if joined is None else joined.secret
        """What all servers of a shared store have and nobody else; each use derives its own from it."""

    def bind(self, server: grpc.aio.Server, branches: Branches) -> None:
        """Let the other replicas reach a server that has not started yet, and its checkpoints."""
        if self._joined is not None:
            self._joined.bind(server, branches)

    def serving(self, core: SandboxCore) -> AbstractAsyncContextManager[None]:
        """Hear of the other replicas and take over from them, for a core that has been entered."""
        return nullcontext() if self._replica is None else self._replica.serve(core)

    def hear(self, makes: Callable[[str], bool]) -> None:
        """Learn who tells whether an environment is here, or is being made, with a key and its tenant's name before it."""
        if self._replica is not None:
            self._replica.makes.here = makes

    def forget(self, keys: Collection[str]) -> None:
        """Note that the environments that were made with these keys are closed, each with its tenant's name before it."""
        if self._replica is not None and keys:
            self._replica.makes.unclaim([claim_of(key) for key in keys])

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
    # It needs asyncpg, which only a PostgreSQL store does.
    from rock_env.server.replicas.joining import joined

    async with joined(store, options, environments, folder, mark, sites) as replica:
        yield Sharing(replica, environments=environments)
