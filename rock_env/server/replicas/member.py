"""One of several servers that share a store: it lives by a lease, owns its boxes, and takes over those of the dead.

Made by `server/app.py` for a PostgreSQL store. Each sandbox has one owner, written into its record by compare-and-set:
who loses that race has lost the sandbox, and whoever was declared dead wrongly finds that nothing it stores is taken.
Deaths, hand-overs and changes are pushed by the store; nothing here polls.
"""

from __future__ import annotations

import asyncio
import logging
import random
import re
from collections.abc import AsyncIterator, Collection, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
from dataclasses import replace

from rock_env.errors import RockError, Unavailable
from rock_env.lifecycle import SandboxRecord, SandboxState
from rock_env.server.own_tasks import OwnTasks, logged
from rock_env.server.replicas.dead_nodes import DeadNodes
from rock_env.server.replicas.environments import SharedEnvs
from rock_env.server.replicas.makes import MakeKeys
from rock_env.server.replicas.places import SharedPlaces
from rock_env.server.replicas.seats import Seat, new_id, not_taken_up
from rock_env.server.replicas.witness import Witness
from rock_env.server.sandboxes.core import SandboxCore
from rock_env.server.sandboxes.ledger import LIVE, HeldSandbox
from rock_env.server.sandboxes.ownership import elsewhere
from rock_env.store.base import Overtaken, Query
from rock_env.store.postgres.members import Member, Members
from rock_env.store.postgres.records import PostgresStore

__all__ = ["UNREACHABLE_S", "Replica"]

log = logging.getLogger(__name__)

UNREACHABLE_S = 1.0
"""How long a call waits for a server that cannot be reached and that this one cannot take over from."""
_UNSETTLED = {SandboxState.PENDING, SandboxState.STARTING}
_PREFIX = re.compile("e[0-9a-f]{8}")
"""How the ids of a server's environments begin."""
_AT_ONCE = 32
"""How many boxes are taken over at a time."""
_DRAIN_PATIENCE_S = 0.5
"""How long a call waits for its box to be handed over before it is served where it came: the call that keeps the box
busy may be waiting for this very one."""


class Replica:
    """Satisfies `server.ownership.Ownership`. `joined` makes one; `serve` lets it act for a core."""

    shared = True

    def __init__(self, store: PostgresStore, seat: Seat) -> None:
        self.members = Members(store)
        self.places = SharedPlaces(store)
        self.pushed = SharedEnvs(store)
        self.node = seat.node
        self.folder = seat.folder
        self.sites = seat.sites
        self.id = seat.own_id
        self.environments = self.maker = seat.environments
        """How the ids of what this server makes begin, environments, sandboxes and builds, whatever its own id is."""
        self.draining = False
        self._asking: asyncio.Task[None] | None = None
        self._store = store
        self._address = seat.address
        self._lease_s = seat.lease_s
        self._core: SandboxCore | None = None
        self._known: dict[str, Member] = {}
        self._taking: dict[str, asyncio.Task[None]] = {}
        self._leaving: dict[str, asyncio.Event] = {}
        self._waiting: set[asyncio.Event] = set()
        self._witness = Witness(seat.witnesses)
        self._tasks = OwnTasks()
        self.makes = MakeKeys(self.members, self.environments, self._tasks)
        """The keys of environments that were made here, or are being made."""

    @classmethod
    @asynccontextmanager
    async def joined(cls, store: PostgresStore, seat: Seat) -> AsyncIterator[Replica]:
        """Be a member, inside the block. Raise `FailedPrecondition` if another state folder is the node's."""
        replica = cls(store, seat)
        try:
            replica._witness.testify(seat.own_id)
            await replica._join()
            replica._tasks.spawn(replica._stay())
            yield replica
        finally:
            await replica._tasks.finish(0)
            with suppress(RockError):  # its lease ends by itself
                await replica.members.leave(replica.id)
            replica._witness.close()

    @asynccontextmanager
    async def serve(self, core: SandboxCore) -> AsyncIterator[None]:
        """Hear of changes and take over what is nobody's, for a core that has been entered."""
        self._core = core
        running = OwnTasks()
        running.spawn(self._hear(core))
        running.spawn(self._mourn(core))
        running.spawn(logged(self.places.follow(core.admission)))
        running.spawn(logged(self.pushed.follow()))
        running.spawn(DeadNodes(self._store, self.members, core, lambda: self.id).watch())
        try:
            yield
        finally:
            self.draining = True  # a call that still waits finds nothing taken over any more
            await running.finish(0)

    # -- what the core asks

    def away_s(self) -> float:
        return self.members.away_s()

    async def claim(self, record: SandboxRecord) -> SandboxRecord | None:
        """Make a sandbox this replica's own if it is nobody's and its box can be taken up here."""
        if self.draining or not self._here(record):
            return None
        if record.owner in await self._living():
            return None
        try:
            return await self._store.save(replace(record, owner=self.id, folder=record.site or self.folder))
        except Overtaken:
            return None  # another replica was faster, or it changed: the change is pushed to us

    async def sole(self) -> bool:
        """Return whether no other replica uses this node."""
        return not any(it.node == self.node for it in (await self._living()).values() if it.id != self.id)

    async def makers(self) -> set[str]:
        """Return the `maker` of every other replica that lives."""
        return {it.environments for it in (await self._living()).values() if it.id != self.id}

    async def settled(self, record: SandboxRecord) -> SandboxRecord | None:
        """Wait until another replica has made or failed to make the sandbox; None if it was not made."""
        with self._told() as told:
            while True:
                told.clear()
                now = await self._store.get(record.id)
                if now is None or not now.idempotency_key:
                    return None
                if now.state not in _UNSETTLED:
                    return now
                if now.owner not in await self._living():
                    if not self._here(now):
                        raise self._nobodys(now)
                    await self.take(now)
                    continue
                await told.wait()

    # -- where a call belongs

    async def route(self, sandbox_id: str, tenant: str) -> tuple[Member, bool] | None:
        """Return the replica that has the sandbox, and whether this one takes it up when that one is gone.

        None: it is here, or nowhere, and the core here says so.

        A sandbox on its way from one replica to another is waited for. Raise `Unavailable` where that takes too long;
        that is soon for one that only a server elsewhere could take up.
        """
        core = self._serving()
        loop = asyncio.get_running_loop()
        began_at = loop.time()
        with self._told() as told:
            while True:
                told.clear()
                await self._steady(sandbox_id)
                if sandbox_id in core.ledger.held:
                    return None
                record = await self._store.get(sandbox_id)
                if record is None or record.tenant != tenant or record.state not in LIVE:
                    return None
                member = (await self._living()).get(record.owner)
                here = self._here(record)
                if member is not None and member.id != self.id:
                    return member, here
                if member is None and not self.draining and here:
                    await self.take(record)
                    if sandbox_id in core.ledger.held:
                        return None
                try:
                    async with asyncio.timeout_at(began_at + (2 * self._lease_s if here else UNREACHABLE_S)):
                        await told.wait()
                except TimeoutError:
                    raise self._nobodys(record) from None

    async def homes(self, prefixes: Collection[str]) -> dict[str, Member | None]:
        """Return by how environments' ids begin whose they are; None: this one's, or nobody's that lives.

        Members are known by what the store tells; it is asked once where one may have joined just now.
        """
        known = _homes(self._known)
        if any(_PREFIX.fullmatch(prefix) for prefix in prefixes if prefix not in known):
            if self._asking is None:
                self._asking = self._tasks.spawn(self._ask())
            await asyncio.shield(self._asking)
            known = _homes(self._known)
        return {prefix: known.get(prefix) if prefix != self.environments else None for prefix in prefixes}

    def of_node(self, node: str) -> Member | None:
        """Return a server of the node that lives, as far as is known, or None."""
        found = [
            it for it in self._known.values() if it.node == node and it.id != self.id and not it.draining
        ]
        return random.choice(found) if found else None

    async def _ask(self) -> None:
        try:
            await self._living()
        finally:
            self._asking = None

    async def claim_makes(self, keys: Mapping[bytes, str]) -> dict[bytes, Member | None]:
        """Return for each key of a Make which replica's it is; None: this one's from now on, or already."""
        claimed = await self.makes.claim(keys)
        homes = await self.homes(set(claimed.values()))
        return {key: homes[environments] for key, environments in claimed.items()}

    async def suspected(self, member: Member) -> None:
        """Declare a replica of this node dead that could not be connected to, if there is proof."""
        if member.node == self.node and self._witness.dead(member.id):
            await self.members.leave(member.id)

    async def departed(self, member: Member) -> None:
        """Wait until a replica is no member any more."""
        with self._told() as told:
            while True:
                told.clear()
                if member.id not in self._known:
                    return
                await told.wait()

    # -- taking over and handing over

    async def take(self, record: SandboxRecord) -> None:
        """Take up a sandbox if it is nobody's; how that went is in its record."""
        task = self._taking.get(record.id)
        if task is None:
            task = self._taking[record.id] = self._tasks.spawn(logged(self._take(record)))
            task.add_done_callback(lambda _: self._taking.pop(record.id, None))
        await asyncio.shield(task)

    async def _take(self, record: SandboxRecord) -> None:
        core = self._serving()
        if record.id not in core.ledger.held:
            await core.reconciler.take_over(record)

    async def take_all(self) -> None:
        """Take up every sandbox of this node that is nobody's."""
        living = await self._living()
        limit = asyncio.Semaphore(_AT_ONCE)

        async def one(record: SandboxRecord) -> None:
            async with limit:
                await self.take(record)

        left = [
            it
            for it in await self._store.find(Query(states=LIVE))
            if it.owner not in living and self._here(it)
        ]
        async with asyncio.TaskGroup() as group:
            for record in left:
                group.create_task(one(record))

    async def hand_over(self, within_s: float) -> int:
        """Let another replica have each box as soon as no call uses it; return how many went.

        Those still in use after `within_s` remain; they are let go when this server ends.
        """
        core = self._serving()
        self.draining = True
        await self.members.drain(self.id)
        others = [it for it in (await self._living()).values() if it.id != self.id and not it.draining]
        # Those that nobody can take now, the next server that can takes up.
        going = [
            held
            for held in core.ledger.held.values()
            if held.record.lasting and any(it.reaches(held.record) for it in others)
        ]
        self._leaving = {held.record.id: asyncio.Event() for held in going}
        tasks = [self._tasks.spawn(logged(self._release_idle(held))) for held in going]
        if tasks:
            await asyncio.wait(tasks, timeout=within_s)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return sum(gone.is_set() for gone in self._leaving.values())

    async def _release_idle(self, held: HeldSandbox) -> None:
        core = self._serving()
        await held.started.wait()
        while True:
            await held.idle.wait()
            async with held.lock:
                if held.users:
                    continue
                if held.record.state in LIVE - {SandboxState.DELETING} and not held.doomed:
                    await core.lives.release(held, owner=f"{self.node}:")
                self._leaving[held.record.id].set()
                return

    async def _steady(self, sandbox_id: str) -> None:
        """Wait while the sandbox is just coming here or going from here."""
        taking, leaving = self._taking.get(sandbox_id), self._leaving.get(sandbox_id)
        if taking is not None:
            await asyncio.shield(taking)
        if leaving is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(_DRAIN_PATIENCE_S):
                    await leaving.wait()

    # -- what goes on all the time

    async def _join(self) -> None:
        await self.members.join(
            self.id,
            node=self.node,
            folder=self.folder,
            address=self._address,
            environments=self.environments,
            sites=self.sites,
            lease_s=self._lease_s,
        )

    async def _stay(self) -> None:
        """Renew the lease; where that was too late, come back as somebody new who owns nothing."""
        while True:
            await asyncio.sleep(self._lease_s / 3)
            try:
                if not await self.members.renew(self.id, lease_s=self._lease_s):
                    await self._reborn()
            except RockError as error:
                log.warning("the lease of this replica could not be renewed: %s", error)

    async def _reborn(self) -> None:
        log.error("this replica was declared dead and gives up its sandboxes replica=%s", self.id)
        self.id = new_id(self.node)
        self._witness.testify(self.id)
        try:
            await self._join()
        except RockError:  # such as where another state folder is the node's by now; it is tried again
            self._witness.withdraw(self.id)
            raise
        if self._core is not None:
            async with asyncio.TaskGroup() as group:
                for held in tuple(self._core.ledger.held.values()):
                    group.create_task(logged(self._give_up(held)))
        if self._core is not None and not self.draining:
            await self.take_all()

    async def _give_up(self, held: HeldSandbox) -> None:
        held.give_up(elsewhere(held.record))
        async with held.lock:
            if held.record.owner != self.id and not held.released:
                await self._serving().lives.release(held, owner=None)

    async def _hear(self, core: SandboxCore) -> None:
        """Pass on every change, whoever made it, and act on those that concern whose sandbox it is."""
        ledger = core.ledger
        async with aclosing(self._store.changes(ledger.revision)) as changes:
            async for record in changes:
                ledger.heard(record)
                held = ledger.held.get(record.id)
                if held is None:
                    if record.state in LIVE and record.owner not in self._known and not self.draining:
                        self._tasks.spawn(logged(self.take(record)))
                elif record.owner != held.record.owner and record.revision > held.record.revision:
                    self._tasks.spawn(logged(self._give_up_to(held, record)))
                self._tell()

    async def _give_up_to(self, held: HeldSandbox, record: SandboxRecord) -> None:
        held.give_up(elsewhere(record))
        async with held.lock:
            if record.revision > held.record.revision and record.owner != self.id and not held.released:
                log.error("a sandbox was taken over sandbox_id=%s by=%s", record.id, record.owner)
                await self._serving().lives.release(held, owner=None)

    async def _mourn(self, core: SandboxCore) -> None:
        """Know who lives; when somebody is gone, take over what that one had."""
        with self.members.listening() as changed:
            before: dict[str, Member] | None = None
            while True:
                changed.clear()
                try:
                    living = await self._without_dead(await self._living(), changed)
                    if (before is None or before.keys() - living.keys()) and not self.draining:
                        await self.take_all()
                        if self.sites:
                            self._tasks.spawn(logged(core.reconciler.sweep_sites()))
                    before = living
                except RockError as error:
                    log.warning("it is not known which replicas live: %s", error)
                    continue
                self._tell()
                others = [self.members.buried_in_s(it) for it in living.values() if it.id != self.id]
                try:
                    # Not wait_for: before Python 3.12 it loses a cancellation that comes together with the event.
                    async with asyncio.timeout(min(others) + 0.01 if others else None):
                        await changed.wait()
                except TimeoutError:
                    with suppress(Unavailable):  # then it is not known, above
                        await self.members.bury()

    async def _without_dead(self, living: dict[str, Member], ended: asyncio.Event) -> dict[str, Member]:
        """Declare dead who has provably died on this node; `ended` is set when somebody else may have."""
        peers = [it.id for it in living.values() if it.node == self.node and it.id != self.id]
        dead = [each for each in peers if self._witness.dead(each)]
        for each in dead:
            await self.members.leave(each)
        self._witness.sweep()
        for each in peers:
            self._witness.watch(each, ended)
        return await self._living() if dead else living

    async def _living(self) -> dict[str, Member]:
        self._known = await self.members.all()
        return self._known

    def _serving(self) -> SandboxCore:
        if self._core is None:
            raise Unavailable("this replica is just starting. Ask again.", retry_after_s=0.2)
        return self._core

    @contextmanager
    def _told(self) -> Iterator[asyncio.Event]:
        told = asyncio.Event()
        self._waiting.add(told)
        try:
            yield told
        finally:
            self._waiting.discard(told)

    def _tell(self) -> None:
        for told in self._waiting:
            told.set()

    def _here(self, record: SandboxRecord) -> bool:
        """Return whether this replica can take the sandbox's box up: it is at a site of its own, or in its node's folder."""
        if record.site:
            return record.site in self.sites
        return record.node in ("", self.node) and record.folder in ("", self.folder)

    def _nobodys(self, record: SandboxRecord) -> Unavailable:
        return elsewhere(record) if self._here(record) else not_taken_up(record)


def _homes(members: Mapping[str, Member]) -> dict[str, Member]:
    return {member.environments: member for member in members.values() if member.environments}
