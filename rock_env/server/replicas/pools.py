"""Warm pools over all servers of a store: the store has how many boxes are wanted, each server stocks its part of them.

Made by `server/replicas/joining`. A part is the number divided by the servers that live and can make the boxes: all, or
those of the node whose engine has the image. It is worked out again when one joins, drains or is gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

import msgspec

from rock_env.errors import InfraError
from rock_env.server.capacity.pools import PoolWish
from rock_env.server.own_tasks import OwnTasks, logged
from rock_env.server.replicas.member import Replica
from rock_env.store.postgres.listener import follow
from rock_env.store.postgres.members import Member
from rock_env.store.postgres.records import PostgresStore
from rock_env.store.postgres.schema import POOLS
from rock_env.store.postgres.settings import StoredSettings

__all__ = ["SharedPools", "part_of"]

Keep = Callable[[PoolWish, int], bool]
"""Stocks so many boxes here from now on; False where that is not possible now."""
_decoder = msgspec.json.Decoder(PoolWish)


class SharedPools:
    """Satisfies `capacity.pools.PoolKeeper`. Enter it while the server is a member."""

    def __init__(self, store: PostgresStore, replica: Replica) -> None:
        self._stored: StoredSettings[bytes] = StoredSettings(
            store, "rock_pools", "key", ("record",), channel=POOLS
        )
        self._replica = replica
        self._tasks = OwnTasks()
        self._keep: Keep | None = None
        self._kept: dict[bytes, tuple[PoolWish, int]] = {}
        """What this server stocks by now, as it was asked for and how many of it."""
        self._one_by_one = asyncio.Lock()

    async def __aenter__(self) -> SharedPools:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._tasks.finish(0)

    def begin(self, keep: Keep) -> None:
        """Stock this server's part of every pool from now on, for as long as it is a member."""
        self._keep = keep
        self._tasks.spawn(logged(follow(self._stored.changed(), self._apply, "pools")))
        self._tasks.spawn(logged(follow(self._replica.members.listening(), self._apply, "pools")))

    async def take_over(self, wishes: Iterable[PoolWish]) -> None:
        """Write what a server of this folder kept alone; a pool that the store has by now stays as it is there."""
        await self._stored.fill({wish.key: (msgspec.json.encode(wish),) for wish in wishes})

    async def set(self, wish: PoolWish) -> None:
        """Keep so many boxes at all servers together; 0 forgets the pool. Raise `Unavailable` if that cannot be kept.

        Raise `Overtaken` where somebody else set it at the same time.
        """
        after = (msgspec.json.encode(wish),) if wish.size else None
        await self._stored.change(wish.key, await self._stored.get(wish.key), after)
        await self._apply()

    async def _apply(self) -> None:
        assert self._keep is not None  # it is the one who begins
        async with self._one_by_one:
            members = await self._replica.members.all()
            try:
                wishes = {key: _decoder.decode(each) for key, (each,) in (await self._stored.all()).items()}
            except msgspec.DecodeError as error:
                raise InfraError(f"the store has a pool that this server cannot read: {error}") from error
            for key, (wish, size) in tuple(self._kept.items()):
                if key not in wishes and size:
                    wishes[key] = msgspec.structs.replace(wish, size=0)
            for key, wish in wishes.items():
                part = part_of(wish, self._replica.id, members.values())
                if self._kept.get(key) == (wish, part) or not (part or key in self._kept):
                    continue
                done = self._keep(wish, part)
                if done and wish.size:
                    self._kept[key] = (wish, part)
                elif wish.size or done:  # tried again at the next change
                    self._kept.pop(key, None)


def part_of(wish: PoolWish, own_id: str, members: Iterable[Member]) -> int:
    """Return how many of a pool's boxes one server stocks; 0 for one that drains or is no member."""
    able = sorted(it.id for it in members if not it.draining and wish.node in ("", it.node))
    if own_id not in able:
        return 0
    size, more = divmod(wish.size, len(able))
    return size + (able.index(own_id) < more)
