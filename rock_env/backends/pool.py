"""Warm pools: a backend that keeps clean, started boxes of another backend in stock and hands each out once.

Wraps any `Backend` and is one; made by `server/app`, its targets set by the operator. A box is stock until it is claimed,
belongs to its claimer from then on and never comes back: nothing is ever cleaned for a second use. It knows no
tenants and decides no capacity; `room` says whether the node has any to spare for stock.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

from rock_env.backends.base import Backend, own_part, that_takes_over
from rock_env.backends.ready_boxes import READY_S, make_ready
from rock_env.backends.stock import STOCK, Lent, Pool, Stocked, pool_key, stock_of
from rock_env.errors import InfraError, InvalidArgument, NotFound, RockError, plugin_call
from rock_env.guest.steering import Steering
from rock_env.inventory import PoolStatus
from rock_env.sandbox import Sandbox
from rock_env.spec import Resources, SandboxSpec

__all__ = ["PooledBackend", "pool_key", "stock_of"]

log = logging.getLogger(__name__)

STOCK_LEASE_S = 60.0
"""A durable box in stock ends by itself this long after its server died; the pool renews its lease until then."""
_RENEW_S = STOCK_LEASE_S / 4
MAX_AGE_S = 1800.0
"""A box in stock is replaced at this age, so that its absolute deadline on the node stays near the one asked for."""
_RECORDED_S = 60.0
"""A claimed box is in a record after this long, or its claimer gave it up."""
_PING_S = 10.0
"""How long a box in stock may take to answer when it is claimed; on a machine under load it is slow, and not broken."""
_FIRST_BACKOFF_S, _LONGEST_BACKOFF_S = 0.5, 60.0
_GRACE_S = 5.0
"""How much later than the server the node ends a box by its lifetime: while the server lives, it is to say why."""
_MOST = 10_000


@runtime_checkable
class Grafting(Protocol):
    """A backend that can give a running, unused box the files of a snapshot; see `DockerBackend`."""

    async def can_graft(self, spec: SandboxSpec, *, snapshot: str) -> bool: ...

    async def graft(self, sandbox_id: str, *, snapshot: str) -> bool: ...


class PooledBackend:
    """A backend with stock. Satisfies `backends.base.Backend`; used on one event loop.

    `durable`: the stock can be claimed as boxes that outlive this server, and as such that do not; else only as the
    latter. `parallel` boxes are started at a time over all pools.
    """

    def __init__(
        self,
        inner: Backend,
        *,
        durable: bool = False,
        parallel: int = 2,
        room: Callable[[Sequence[Resources]], bool] = lambda _: True,
    ) -> None:
        self._inner, self.name, self.hosts = inner, inner.name, inner.hosts
        self.site: str = getattr(inner, "site", "")
        self.sites: frozenset[str] = getattr(inner, "sites", frozenset({self.site}))
        self.snapshot_site: str = getattr(inner, "snapshot_site", "")
        self.maker = ""
        """Part of the id of each box in stock, by which other servers that see it know whose it is."""
        self._durable = durable
        self._starts = asyncio.Semaphore(parallel)
        self._parallel = parallel
        self._room = room
        self._pools: dict[str, Pool] = {}
        self._lent: dict[str, Lent] = {}
        self._claimed: deque[tuple[float, str]] = deque()
        self._starting_ids: set[str] = set()
        self._tender: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._closed = False

    # -- a backend

    async def create(
        self,
        spec: SandboxSpec,
        *,
        sandbox_id: str,
        snapshot: str = "",
        durable: bool = False,
        lease_s: float | None = None,
    ) -> Sandbox:
        """Hand out a box in stock, under the id it has, or start one under `sandbox_id`.

        With a snapshot, a box in stock is given its files where the backend can do that.
        """
        pool = self._pools.get(pool_key(spec))
        serves = pool is not None and (self._durable or not durable)
        if pool is not None and serves and (not snapshot or await self._can_graft(pool, spec, snapshot)):
            lent = self._durable and not durable
            box = await self._claim(pool, spec, STOCK_LEASE_S if lent and lease_s is None else lease_s)
            if box is not None and (not snapshot or await self._grafted(box, snapshot)):
                if lent:
                    self._lend(box, renew=lease_s is None)
                return box
        self._make_room()
        return await self._inner.create(
            spec, sandbox_id=sandbox_id, snapshot=snapshot, durable=durable, lease_s=lease_s
        )

    def own_part(self, tenant: str) -> Backend | None:
        """Return where a tenant has its boxes apart from the stock, which gives way to them, too; see `KeepsApart`."""
        if (part := own_part(self._inner, tenant)) is not None:
            self._make_room()
        return part

    async def adopt(self, sandbox_id: str, *, spec: SandboxSpec) -> Sandbox | None:
        return await self._inner.adopt(sandbox_id, spec=spec)

    async def census(self) -> Mapping[str, str]:
        """Return every box on the node; what is stock is said to be."""
        stock = self.stock
        found = await self._inner.census()
        return {box: f"pool stock, {what}" if box in stock else what for box, what in found.items()}

    async def destroy(self, sandbox_id: str) -> None:
        await self._inner.destroy(sandbox_id)

    async def snapshot(self, sandbox_id: str, *, snapshot_id: str) -> int:
        return await self._inner.snapshot(sandbox_id, snapshot_id=snapshot_id)

    async def snapshots(self) -> set[str]:
        return await self._inner.snapshots()

    async def delete_snapshot(self, snapshot_id: str) -> None:
        await self._inner.delete_snapshot(snapshot_id)

    async def restore(self, sandbox_id: str, *, snapshot: str) -> Sandbox:
        lent = self._lent.get(sandbox_id)
        box = await self._inner.restore(sandbox_id, snapshot=snapshot)
        if lent is not None:
            self._lend(box, renew=lent.renew)
        return box

    async def let_go(self) -> None:
        """Destroy the stock and what was claimed for this server's time only; let go of the rest."""
        await self._empty()
        await self._inner.let_go()

    async def close(self) -> None:
        await self._empty()
        await self._inner.close()

    # -- pools

    @property
    def stock(self) -> frozenset[str]:
        """Return the ids of the boxes in stock."""
        return frozenset(stocked.box.id for pool in self._pools.values() for stocked in pool.ready)

    @property
    def accounted(self) -> frozenset[str]:
        """Return the ids of boxes without a record that are no orphans: stock, made or claimed at this moment."""
        now = asyncio.get_running_loop().time()
        while self._claimed and self._claimed[0][0] < now - _RECORDED_S:
            self._claimed.popleft()
        return self.stock | self._starting_ids | {box_id for _, box_id in self._claimed}

    def images(self) -> set[str]:
        """Return the images that pools need."""
        return {pool.spec.image for pool in self._pools.values() if pool.target and pool.spec.image}

    def set_target(self, spec: SandboxSpec, size: int) -> PoolStatus:
        """Keep `size` boxes of this spec in stock from now on; 0 ends the pool. Raise `InvalidArgument`."""
        self.check_target(size)
        if self._closed:
            raise NotFound("the server is stopping: its pools are closed")
        pool = self._pools.setdefault(pool_key(spec), Pool(spec))
        pool.spec, pool.target = spec, size
        pool.retry_at = pool.backoff_s = 0.0
        if pool.keeper is None:
            pool.keeper = self._spawn(self._keep(pool))
        if self._tender is None:
            self._tender = self._spawn(self._tend())
        pool.changed.set()
        return pool.status(self.name)

    def check_target(self, size: int) -> None:
        """Raise `InvalidArgument` for a size that no pool may have."""
        if not 0 <= size <= _MOST:
            raise InvalidArgument(f"the size of a pool must be from 0 to {_MOST}, got {size}")

    def status_of(self, spec: SandboxSpec) -> PoolStatus:
        """Return the pool of this spec, also where there is none."""
        return (self._pools.get(pool_key(spec)) or Pool(spec)).status(self.name)

    def status(self) -> list[PoolStatus]:
        """Return all pools, by digest."""
        return [self._pools[key].status(self.name) for key in sorted(self._pools)]

    def refill(self) -> None:
        """Look again whether there is room for stock. Cheap; call it whenever a box is gone."""
        for pool in self._pools.values():
            if pool.waits_for_room:
                pool.changed.set()

    # -- claiming

    async def _claim(self, pool: Pool, spec: SandboxSpec, lease_s: float | None) -> Sandbox | None:
        if spec.lifetime_s <= pool.spec.lifetime_s:  # a shorter-lived box of the pool would end too early
            while pool.ready:
                stocked = pool.ready.popleft()  # from here on nobody else can get it
                latest_s = spec.lifetime_s + _GRACE_S
                if await self._hand_over(
                    pool, stocked, latest_s if lease_s is None else min(lease_s, latest_s)
                ):
                    pool.hits += 1
                    pool.changed.set()
                    return stocked.box
        pool.misses += 1
        pool.changed.set()
        return None

    async def take_over(self, sandbox_id: str, *, snapshot: str, steering: Steering) -> list[str]:
        inner = that_takes_over(self._inner)
        return await inner.take_over(sandbox_id, snapshot=snapshot, steering=steering)

    async def _can_graft(self, pool: Pool, spec: SandboxSpec, snapshot: str) -> bool:
        inner = self._inner
        return (
            bool(pool.ready)
            and not spec.ready  # what runs in it has seen other files
            and isinstance(inner, Grafting)
            and await inner.can_graft(spec, snapshot=snapshot)
        )

    async def _grafted(self, box: Sandbox, snapshot: str) -> bool:
        """Give a claimed box the files of a snapshot; one that cannot get them is destroyed."""
        assert isinstance(self._inner, Grafting)
        done = False
        try:
            done = await self._inner.graft(box.id, snapshot=snapshot)
        except InfraError as error:
            log.warning("a box in stock could not be given a snapshot box=%s cause=%s", box.id, error)
        finally:
            if not done:
                await asyncio.shield(self._inner.destroy(box.id))
        return done

    async def _hand_over(self, pool: Pool, stocked: Stocked, lease_s: float) -> bool:
        """Check that the box answers and give it its claimer's lease. What fails, or whose claimer left, is destroyed."""
        try:
            async with asyncio.timeout(_PING_S):
                await stocked.box.lease(lease_s)
        except (RockError, TimeoutError) as error:
            log.warning("a box in stock did not answer box=%s cause=%s", stocked.box.id, error)
            self._drop(pool, stocked)
            return False
        except BaseException:
            self._discard(stocked)
            raise
        assert stocked.watch is not None  # set when it was stocked
        stocked.watch.cancel()
        self._claimed.append((asyncio.get_running_loop().time(), stocked.box.id))
        return True

    def _lend(self, box: Sandbox, *, renew: bool) -> None:
        """Have a durable box end with this server all the same: by `let_go`, or by its lease if that never comes."""
        former = self._lent.get(box.id)
        if former is not None:
            former.watch.cancel()
        self._lent[box.id] = Lent(box, renew, self._spawn(self._until_lost(box)))

    async def _until_lost(self, box: Sandbox) -> None:
        await box.lost()
        self._lent.pop(box.id, None)

    # -- filling

    async def _keep(self, pool: Pool) -> None:
        """Keep one pool at its target: at each change, as fast as `parallel` and failures allow."""
        loop = asyncio.get_running_loop()
        while True:
            await pool.changed.wait()
            pool.changed.clear()
            while len(pool.ready) > pool.target:
                self._discard(pool.ready.popleft())
            while not pool.changed.is_set() and (missing := pool.target - len(pool.ready)) > 0:
                batch = self._possible(pool, min(missing, self._parallel))
                pool.waits_for_room = batch == 0
                if pool.waits_for_room:
                    break
                async with asyncio.TaskGroup() as group:
                    for _ in range(batch):
                        group.create_task(self._stock_one(pool))
                if pool.backoff_s:
                    pool.retry_at = loop.time() + pool.backoff_s
                    await self._pause(pool)

    def _possible(self, pool: Pool, wanted: int) -> int:
        """Return how many of the wanted boxes the node has room for, beside all stock there is or will be."""
        stock = self._in_stock()
        while wanted and not self._room([*stock, *[pool.spec.resources] * wanted]):
            wanted -= 1
        return wanted

    async def _pause(self, pool: Pool) -> None:
        """Wait until the backoff is over, or until somebody sets the target anew."""
        while (left := pool.retry_at - asyncio.get_running_loop().time()) > 0:
            pool.changed.clear()
            try:
                async with asyncio.timeout(left):
                    await pool.changed.wait()
            except TimeoutError:
                return

    async def _stock_one(self, pool: Pool) -> None:
        box_id = f"{STOCK}{self.maker}{'-' if self.maker else ''}{secrets.token_hex(8)}"
        spec = replace(pool.spec, lifetime_s=pool.spec.lifetime_s + MAX_AGE_S)
        lease_s = STOCK_LEASE_S + (READY_S if spec.ready else 0.0) if self._durable else None
        pool.starting += 1
        self._starting_ids.add(box_id)
        try:
            async with self._starts:
                with plugin_call(f"stocking a box of {pool.spec.image or 'the plain kind'}"):
                    box = await self._inner.create(
                        spec, sandbox_id=box_id, durable=self._durable, lease_s=lease_s
                    )
                    if spec.ready:
                        await make_ready(box, spec.ready)
        except RockError as error:
            pool.failures += 1
            pool.last_failure = error.message
            pool.backoff_s = min(max(pool.backoff_s * 2, _FIRST_BACKOFF_S), _LONGEST_BACKOFF_S)
            log.warning("a pool could not be filled spec=%s cause=%s", pool_key(pool.spec), error)
            return
        finally:
            pool.starting -= 1
            self._starting_ids.discard(box_id)
        pool.last_failure, pool.backoff_s, pool.retry_at = "", 0.0, 0.0
        stocked = Stocked(box, asyncio.get_running_loop().time())
        stocked.watch = self._spawn(self._await_loss(pool, stocked))
        pool.ready.append(stocked)

    async def _await_loss(self, pool: Pool, stocked: Stocked) -> None:
        reason = await stocked.box.lost()
        if stocked in pool.ready:
            log.warning("a box in stock died box=%s cause=%s", stocked.box.id, reason)
            self._drop(pool, stocked)

    async def _tend(self) -> None:
        """Renew leases for ever, and replace what is too old."""
        while True:
            await asyncio.sleep(_RENEW_S)
            oldest = asyncio.get_running_loop().time() - MAX_AGE_S
            for pool in tuple(self._pools.values()):
                for stocked in tuple(pool.ready):
                    if stocked.made_at < oldest:
                        self._drop(pool, stocked)
            boxes = [lent.box for lent in self._lent.values() if lent.renew]
            if self._durable:
                boxes += [stocked.box for pool in self._pools.values() for stocked in pool.ready]
            # All at once: one that does not answer must not cost the others their leases.
            await asyncio.gather(*map(self._renew, boxes))

    async def _renew(self, box: Sandbox) -> None:
        try:
            async with asyncio.timeout(_PING_S):
                await box.lease(STOCK_LEASE_S)
        except (RockError, TimeoutError) as error:  # its loss, if it is lost, is noticed by who watches it
            log.warning("a lease was not renewed box=%s cause=%s", box.id, error)

    def _drop(self, pool: Pool, stocked: Stocked) -> None:
        """Destroy a box in stock that is of no use any more, and let it be replaced."""
        if stocked in pool.ready:
            pool.ready.remove(stocked)
        pool.lost += 1
        pool.changed.set()
        self._discard(stocked)

    # -- emptying

    def _in_stock(self) -> list[Resources]:
        pools = self._pools.values()
        return [pool.spec.resources for pool in pools for _ in range(len(pool.ready) + pool.starting)]

    def _make_room(self) -> None:
        """Give stock up while the node is too full for it: sandboxes that somebody uses come first."""
        pools = self._pools.values()
        while (
            pools
            and not self._room(self._in_stock())
            and (fullest := max(pools, key=lambda pool: len(pool.ready))).ready
        ):
            self._discard(fullest.ready.popleft())

    def _discard(self, stocked: Stocked) -> None:
        if stocked.watch is not None:
            stocked.watch.cancel()
        self._spawn(self._destroy(stocked.box))

    async def _destroy(self, box: Sandbox) -> None:
        try:
            with plugin_call(f"destroying stock {box.id}"):
                await box.close()
        except RockError as error:
            log.error("a box in stock could not be destroyed box=%s cause=%s", box.id, error)

    async def _empty(self) -> None:
        self._closed = True
        keepers = [pool.keeper for pool in self._pools.values() if pool.keeper is not None]
        if self._tender is not None:
            keepers.append(self._tender)
        for keeper in keepers:
            keeper.cancel()
        await asyncio.gather(*keepers, return_exceptions=True)
        for lent in tuple(self._lent.values()):
            lent.watch.cancel()
            self._spawn(self._destroy(lent.box))
        for pool in self._pools.values():
            while pool.ready:
                self._discard(pool.ready.popleft())
        while self._tasks:
            await asyncio.wait(tuple(self._tasks))
        self._pools.clear()

    def _spawn(self, act: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(act)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
