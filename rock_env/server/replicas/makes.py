"""Keys of calls of Make among replicas: which are this server's, and when they are forgotten.

Made by `member`. The store has the keys; they are forgotten some together, soon after their environments were closed.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager

from rock_env.server.own_tasks import OwnTasks, logged
from rock_env.store.postgres.members import Members

__all__ = ["MakeKeys"]

_UNCLAIM_S = 0.5
"""Keys of environments that were closed within so long are forgotten together."""


class MakeKeys:
    """The keys of one server's environments. `environments` is how the ids of these begin."""

    def __init__(self, members: Members, environments: str, tasks: OwnTasks) -> None:
        self.here: Callable[[str], bool] = lambda key: False
        """Whether an environment that is here, or is being made, has this key of its tenant's; set by `Sharing`."""
        self._members = members
        self._environments = environments
        self._tasks = tasks
        self._unclaimed: dict[bytes, str] = {}
        """By their digest, the keys of calls that may have made something; empty where their environment is closed."""
        self._making: Counter[bytes] = Counter()
        """How many calls of Make there are with a key."""
        self._unclaiming: asyncio.Task[None] | None = None

    async def claim(self, keys: Mapping[bytes, str]) -> dict[bytes, str]:
        """Claim keys that nobody has; return for each how the ids of its server's environments begin."""
        for key in keys:
            self._unclaimed.pop(key, None)
        if self._unclaiming is not None:  # it may hold one of them, as the key of an environment before
            await asyncio.shield(self._unclaiming)
        return await self._tasks.run(self._claim(keys))

    async def _claim(self, keys: Mapping[bytes, str]) -> dict[bytes, str]:
        """Claim to the end, also for a call that is cut off: what it had claimed is forgotten only then."""
        with self.making(keys):
            return await self._members.claim(keys, self._environments)

    @contextmanager
    def making(self, keys: Mapping[bytes, str]) -> Iterator[None]:
        """Hold keys for a call of Make. Those that it claims and makes nothing of are forgotten after it."""
        self._making.update(keys.keys())
        try:
            yield
        finally:
            self._making.subtract(keys.keys())
            self._making = +self._making
            self._unclaim(keys)

    def unclaim(self, keys: Collection[bytes]) -> None:
        """Forget keys of environments here that are closed: soon, and many at once."""
        self._unclaim(dict.fromkeys(keys, ""))

    def _unclaim(self, keys: Mapping[bytes, str]) -> None:
        if keys and not self._unclaimed:
            self._tasks.spawn(logged(self._unclaim_soon()))
        self._unclaimed.update(keys)

    async def _unclaim_soon(self) -> None:
        await asyncio.sleep(_UNCLAIM_S)
        left, self._unclaimed = self._unclaimed, {}
        keys = [key for key, own in left.items() if not (self._making[key] or (own and self.here(own)))]
        if not keys:
            return
        self._unclaiming = self._tasks.spawn(logged(self._members.unclaim(keys, self._environments)))
        try:
            await self._unclaiming
        finally:
            self._unclaiming = None
