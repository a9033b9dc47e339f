"""Each index and each file from upstream once, however many ask at the same time.

Used by the mirror's parts. A fetch belongs to nobody who waits: it goes on when its first asker hangs up. It is charged to
that one's tenant.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, BinaryIO, TypeVar

from rock_env.errors import InfraError, ResourceExhausted, RockError, Unavailable, of_full_disk
from rock_env.server.own_tasks import OwnTasks
from rock_env.server.packages.bounds import FetchLimits, TenantBounds
from rock_env.server.packages.cache import FileCache
from rock_env.server.packages.index import Index, Wanted
from rock_env.server.packages.upstream import Count, Upstream, aside

__all__ = ["PackageStore"]

_BUSY_S = 10.0

T = TypeVar("T")


class _Queued:
    """A fetch that waits for the first turn of those who ask for it."""

    def __init__(self) -> None:
        self.begins: asyncio.Future[Callable[[], Coroutine[Any, Any, Any]]] = (
            asyncio.get_running_loop().create_future()
        )
        self.landed = asyncio.Event()
        self.turns: dict[str, asyncio.Task[None]] = {}
        """By tenant."""

    async def run(self) -> Any:
        return await (await self.begins)()


class PackageStore:
    """What the mirror holds; used on one event loop. Close it by `close`."""

    def __init__(
        self, cache: FileCache, upstream: Upstream, bounds: TenantBounds, limits: FetchLimits
    ) -> None:
        self.upstream = upstream
        self._cache = cache
        self._bounds = bounds
        self._limits = limits
        self._tasks = OwnTasks()
        self._flights: dict[str, asyncio.Task[Any]] = {}
        self._queued: dict[str, _Queued] = {}
        self._indices: OrderedDict[str, tuple[float, Index]] = OrderedDict()
        self._indices_bytes = 0
        self._coming_bytes = 0
        """On the disk beside the cache: files that are being fetched."""

    async def close(self) -> None:
        """End the fetches that run."""
        await self._tasks.finish(0)

    async def index(self, tenant: str, key: str, load: Callable[[Count], Awaitable[Index]]) -> Index:
        """Return an index that is fresh; `load` fetches and reads it where there is none."""
        kept = self._indices.get(key)
        if kept is not None and time.monotonic() < kept[0]:
            self._indices.move_to_end(key)
            return kept[1]

        async def fetch() -> Index:
            loaded = await load(lambda count: self._bounds.add_bytes(tenant, count))
            self._keep(key, loaded)
            return loaded

        return await self._once(tenant, f"index {key}", fetch)

    def former(self, key: str) -> Index | None:
        """Return an index that is kept, fresh or not."""
        kept = self._indices.get(key)
        return None if kept is None else kept[1]

    async def file(self, tenant: str, wanted: Wanted) -> BinaryIO:
        """Return a file, open, that is what its index says. The caller closes it."""
        found = await aside(self._cache.open, wanted.key)
        if found is None:
            await self._once(tenant, wanted.key, lambda: self._fetch(tenant, wanted))
            found = await aside(self._cache.open, wanted.key)
        if found is None:
            raise Unavailable("the mirror's cache is too small for what is asked of it at once. Try again.")
        return found

    async def once(self, key: str, act: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Return what `act` returns, which runs once for all who ask meanwhile. It fetches nothing."""
        flight = self._flights.get(key)
        if flight is None:
            flight = self._flights[key] = self._tasks.spawn(act())
            flight.add_done_callback(lambda done: self._landed(key, done))
        result: T = await asyncio.shield(flight)
        return result

    async def _once(self, tenant: str, key: str, act: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """As `once`, when a fetch of anybody's who asks may run: nobody waits for another tenant's turn."""
        queued = self._queued.get(key)
        if queued is None:
            self._bounds.charge(tenant)
            queued = self._queued[key] = _Queued()
        if tenant not in queued.turns and not queued.begins.done():
            queued.turns[tenant] = self._tasks.spawn(self._in_turn(tenant, queued, act))
        return await self.once(key, queued.run)

    async def _in_turn(
        self, tenant: str, queued: _Queued, act: Callable[[], Coroutine[Any, Any, Any]]
    ) -> None:
        async with self._bounds.turn(tenant):
            if not queued.begins.done():
                queued.begins.set_result(act)
                await queued.landed.wait()

    def _landed(self, key: str, done: asyncio.Task[Any]) -> None:
        del self._flights[key]
        queued = self._queued.pop(key, None)
        if queued is not None:
            queued.landed.set()
            for turn in queued.turns.values():
                turn.cancel()  # those whose turn did not come
        if not done.cancelled():
            done.exception()  # whoever waits is told; where nobody does, nobody is missing it

    async def _fetch(self, tenant: str, wanted: Wanted) -> None:
        if await aside(self._cache.holds, wanted.key):  # it came while its asker looked for it
            return
        partial, coming = self._cache.partial(), 0

        def count(more: int) -> None:
            nonlocal coming
            coming += more
            self._coming_bytes += more
            self._bounds.add_bytes(tenant, more)
            if self._coming_bytes > self._cache.most_bytes:
                raise ResourceExhausted(
                    "more is being fetched at once than the mirror may keep", retry_after_s=_BUSY_S
                )

        try:
            await self.upstream.download(wanted, partial, count=count)
            await aside(self._cache.add, wanted.key, partial)
        except OSError as error:
            if isinstance(error, RockError):
                raise
            raise of_full_disk(error) or InfraError(f"the package mirror cannot write: {error}") from error
        finally:
            self._coming_bytes -= coming
            await aside(partial.unlink, missing_ok=True)

    def _keep(self, key: str, index: Index) -> None:
        former = self._indices.pop(key, None)
        self._indices_bytes += _weight(index) - (0 if former is None else _weight(former[1]))
        self._indices[key] = (time.monotonic() + self._limits.fresh_s, index)
        while len(self._indices) > 1 and self._indices_bytes > self._limits.indices_bytes:
            _, (_, oldest) = self._indices.popitem(last=False)
            self._indices_bytes -= _weight(oldest)


def _weight(index: Index) -> int:
    """Return about how much memory an index takes."""
    return len(index.page) + 512 * len(index.files)
