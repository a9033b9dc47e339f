"""The sandboxes of one server: what may be asked of them, and by whom.

A change is stored before it is answered or told to anyone; it runs in a task of the core's own, so a caller that hangs
up leaves nothing half done. How boxes come and go is in `lives`, the checkpoint tree in `checkpoints`, what a restart
finds in `reconcile`. What a running box does (commands, files) passes by here only to be counted as use.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace

from rock_env.backends.base import Backend, part_of, site_of
from rock_env.backends.router import BackendRouter
from rock_env.errors import FailedPrecondition, NotFound, RockError, Unavailable
from rock_env.inventory import BackendCensus
from rock_env.lifecycle import (
    SandboxRecord,
    SandboxState,
    born,
    kept_busy,
    next_deadline,
    renewed,
    transition,
)
from rock_env.sandbox import Sandbox
from rock_env.security.sandbox_tokens import check_sandbox
from rock_env.server.capacity.admission import Admission, Grant
from rock_env.server.own_tasks import OwnTasks, logged
from rock_env.server.sandboxes.box_call import box_call
from rock_env.server.sandboxes.layers import LayerReferences
from rock_env.server.sandboxes.ledger import LIVE, HeldSandbox, Ledger
from rock_env.server.sandboxes.lives import NODE_GRACE_S, WORKING, Lives, Pin, Provide
from rock_env.server.sandboxes.ownership import Ownership, elsewhere
from rock_env.server.sandboxes.reconcile import Reconciler
from rock_env.spec import SandboxSpec
from rock_env.store.base import Query, SandboxStore
from rock_env.task_spec import check_amounts

__all__ = ["LIVE", "SandboxCore", "SandboxWish", "new_sandbox_id"]

_USABLE = {SandboxState.RUNNING, SandboxState.FAILED}
"""States whose box takes calls; a failed one answers each with why it failed."""
_STOP_S = 3.0
"""How long changes in progress may take to finish when the server stops."""
_END_S = 60.0
"""Then a box that cannot be ended is left to its lease and to the next server."""


@dataclass(frozen=True, slots=True)
class SandboxWish:
    """What a Create asks for."""

    spec: SandboxSpec
    environment: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    lease_s: float | None = None
    idle_timeout_s: float | None = None
    key: str = ""
    digest: str = ""
    snapshot_id: str = ""
    """Start from this snapshot; whoever asks has checked that it is there to be used."""
    backend: str = ""
    """Where the snapshot is; empty: the router decides by the spec."""
    ephemeral: bool = False
    """End with this server, also where sandboxes are durable: what uses it could not go on without the server."""
    episode: bytes | None = None
    """See `SandboxRecord.episode`."""
    wait_s: float | None = None
    """How long to wait for a place on the node; None: as long as the admission does by itself."""
    place: Grant | None = None
    """A place that was admitted for it already, with others of its group. If Create raises, its caller releases it."""
    sandbox_id: str = ""
    """Chosen beforehand, for what must be found again after a crash; empty: a new one."""


def new_sandbox_id() -> str:
    """Return an id that no other sandbox has."""
    return f"sb-{secrets.token_hex(8)}"


async def _as_it_is(_: str, spec: SandboxSpec) -> SandboxSpec:
    return spec


def _with_nothing(_: str, spec: SandboxSpec) -> SandboxSpec:
    return spec


class SandboxCore:
    """Create it with backends and an open store, both the caller's to close, and enter it on the event loop.

    `tenant` tells for whom the present call is made; nobody sees, uses or changes another tenant's sandboxes.
    `admission` bounds what all of them take of the node, `pin` resolves the images they name.
    `durable`: sandboxes outlive this server, and leaving the core lets go of them instead of deleting them.
    """

    def __init__(
        self,
        backends: Backend | BackendRouter,
        store: SandboxStore,
        *,
        tenant: Callable[[], str] = lambda: "",
        durable: bool = False,
        admission: Admission | None = None,
        pin: Pin = _as_it_is,
        provide: Provide = _with_nothing,
        ownership: Ownership | None = None,
        most_snapshots: int = 10_000,
        most_snapshot_bytes: int = 100 << 30,
    ) -> None:
        self.backends = BackendRouter.of(backends)
        self.durable = durable
        self.tasks = OwnTasks()
        store.when_away(self.tasks.refuse)
        self.ledger = Ledger(store, tenant=tenant, due=self._due, ownership=ownership)
        self.layers = LayerReferences(store, self.backends, self.ledger.ownership)
        self.admission = Admission() if admission is None else admission
        self.lives = Lives(
            self.ledger,
            self.backends,
            self.layers,
            self.tasks,
            admission=self.admission,
            pin=pin,
            provide=provide,
        )
        self.reconciler = Reconciler(self.ledger, self.backends, self.layers, self.lives)
        self.most_snapshots = most_snapshots
        self.most_snapshot_bytes = most_snapshot_bytes
        """Of one tenant, at once."""
        self._stopping = False

    async def __aenter__(self) -> SandboxCore:
        self.ledger.open()
        self.ledger.revision = await self.ledger.store.revision()
        await self.reconciler.on_start(durable=self.durable)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Delete every sandbox that ends with this server, with the reason in its history; let go of the others."""
        self.stop()
        self.ledger.deadlines.close()
        await self.tasks.finish(_STOP_S)
        await self.lives.close()
        for held in tuple(self.ledger.held.values()):
            if not (held.record.lasting and (held.record.state in WORKING | {SandboxState.FAILED})):
                self.tasks.spawn(logged(self.lives.destroy(held, "the server stopped")))
        await self.tasks.finish(_END_S)

    def stop(self) -> None:
        """Take no more sandboxes and end the watches, so that the server can stop."""
        self._stopping = True
        for held in self.ledger.held.values():
            held.give_up(_stopping())
        self.ledger.watchers.end()

    # -- the calls

    async def create(self, wish: SandboxWish) -> SandboxRecord:
        """Return a running sandbox: a new one, or the one that this key made, in whatever state it is by now.

        A Create that failed made nothing and leaves its key free.
        """
        return await self.tasks.run(self._create(wish))

    async def get(self, sandbox_id: str) -> SandboxRecord:
        """Return the record. Raise `NotFound` for an id that is unknown or deleted long ago."""
        return await self.ledger.get(sandbox_id)

    async def find(self, query: Query) -> Sequence[SandboxRecord]:
        """Return the tenant's matching records by ascending id."""
        return await self.ledger.store.find(replace(query, tenant=self.ledger.tenant()))

    async def watch(self, labels: Mapping[str, str], *, after_revision: int) -> AsyncGenerator[SandboxRecord]:
        """Yield what changed after the revision (0: every live sandbox), then each change as it happens.

        Raise `FailedPrecondition` for a revision this store has not reached, else as `Watcher` does.
        """
        if after_revision > self.ledger.revision and after_revision > await self.ledger.store.revision():
            raise FailedPrecondition(
                f"after_revision is {after_revision}, but the latest change here is {self.ledger.revision}: "
                "the server lost its store or is another one. Watch from 0."
            )
        watcher = self.ledger.watchers.add(self.ledger.tenant(), labels)
        try:
            states = LIVE if after_revision == 0 else frozenset(SandboxState)
            query = Query(states=states, labels=labels, after_revision=after_revision)
            known = await self.find(query)
            for record in sorted(known, key=lambda record: record.revision):
                watcher.skip(record.revision)
                yield record
            async for record in watcher:
                yield record
        finally:
            self.ledger.watchers.remove(watcher)

    async def delete(
        self, sandbox_id: str, *, only: Callable[[SandboxRecord], bool] | None = None
    ) -> SandboxRecord:
        """Destroy the box; deleting what is deleted returns its record, and so does what `only` says no to."""
        held = self.ledger.visible(sandbox_id)
        if held is None:
            record = await self.get(sandbox_id)
            if record.state in LIVE:
                raise elsewhere(record)
            return record
        if only is None or only(held.record):
            held.abandon(_ended_early(held, "deleted by its user"))
            await self.tasks.run(self.lives.destroy(held, "deleted by its user", only=only))
        return held.record

    async def renew(self, sandbox_id: str, lease_s: float) -> SandboxRecord:
        """Let the lease end `lease_s` from now. Raise `FailedPrecondition` where the box cannot be used any more."""
        return await self.tasks.run(self._renew(sandbox_id, lease_s))

    async def pause(self, sandbox_id: str) -> SandboxRecord:
        """Stop every process of the box; pausing what is paused returns its record."""
        return await self.tasks.run(self._halt(sandbox_id, SandboxState.PAUSED, "paused by its user"))

    async def resume(self, sandbox_id: str) -> SandboxRecord:
        """Let the processes of the box go on; resuming what runs returns its record."""
        return await self.tasks.run(self._halt(sandbox_id, SandboxState.RUNNING, "resumed by its user"))

    async def known(self, sandbox_id: str) -> SandboxRecord | None:
        """Return a record of any tenant's, to find out who may use it."""
        held = self.ledger.held.get(sandbox_id)
        return await self.ledger.store.get(sandbox_id) if held is None else held.record

    async def amend(self, sandbox_id: str, change: Callable[[SandboxRecord], SandboxRecord]) -> SandboxRecord:
        """Store what `change` makes of the record of a live sandbox; it may not touch its state or deadlines."""
        return await self.tasks.run(self._amend(sandbox_id, change))

    async def _amend(
        self, sandbox_id: str, change: Callable[[SandboxRecord], SandboxRecord]
    ) -> SandboxRecord:
        held = await self.ledger.find_held(sandbox_id)
        async with held.lock:
            if held.released:
                raise elsewhere(held.record)
            await self.ledger.save(held, change(held.record))
            return held.record

    @asynccontextmanager
    async def using(self, sandbox_id: str) -> AsyncIterator[Sandbox]:
        """Give the box to one call; it is not idle meanwhile. Raise `NotFound`, `Unavailable` or `FailedPrecondition`."""
        check_sandbox(sandbox_id)
        held = self.ledger.visible(sandbox_id)
        state = (await self.get(sandbox_id)).state if held is None else held.record.state
        if held is None or state in (SandboxState.DELETING, SandboxState.DELETED):
            record = await self.get(sandbox_id)
            if held is None and record.state in LIVE - {SandboxState.DELETING}:
                raise elsewhere(record)
            raise NotFound(f"sandbox {sandbox_id!r} is {record.state} ({record.reason})")
        if held.away:
            raise _away(held)
        if state is SandboxState.RUNNING and held.box is None:
            doing = "restored" if held.record.restoring else "taken up by this server"
            raise Unavailable(f"sandbox {sandbox_id!r} is being {doing}. Ask again in a moment.")
        if state not in _USABLE or held.box is None:
            remedy = {
                SandboxState.PAUSED: "Resume it first",
                SandboxState.FAILED: "Create another one",
            }.get(state, "Wait until it is RUNNING")
            raise FailedPrecondition(f"sandbox {sandbox_id!r} is {state} ({held.record.reason}). {remedy}.")
        held.users += 1
        held.idle.clear()
        try:
            yield held.box
        finally:
            held.users -= 1
            if not held.users:
                held.idle.set()
            held.last_used_at = self.ledger.now()

    def idle_s(self, sandbox_id: str) -> float:
        """Return for how long no call has used the box, of whatever tenant; infinity for one that is not here."""
        held = self.ledger.held.get(sandbox_id)
        if held is None:
            return math.inf
        return 0.0 if held.users else self.ledger.now() - held.last_used_at

    async def census(self, *, sweep: bool = False) -> list[BackendCensus]:
        """Compare what exists on the node with what is recorded, of all tenants; `sweep` destroys what nothing needs.

        Raise `InfraError` where that failed for some of it.
        """
        counted = await self.reconciler.census()
        if sweep:
            await self.tasks.run(self.reconciler.sweep(counted))
        return counted

    # -- how they are done

    async def _create(self, wish: SandboxWish) -> SandboxRecord:
        if self._stopping:
            raise _stopping()
        record = self._born(wish)
        ledger = self.ledger
        # Before it is stored: who finds it there finds it here.
        held = ledger.hold(record)
        if wish.place is not None and wish.place.held:  # else it came and went with a try before this one
            held.place = wish.place
        async with held.lock:
            try:
                stored = await ledger.store.add(record)
                if stored.id == record.id:
                    held.record = stored
                    ledger.tell(stored)
                    await self.lives.start(held, wait_s=wish.wait_s)
                    return held.record
            finally:
                held.started.set()
                if held.record.revision == 0 or held.record.state not in LIVE:
                    ledger.held.pop(record.id, None)
                    held.free()
        return await self._made_before(stored, wish)

    def _born(self, wish: SandboxWish) -> SandboxRecord:
        check_amounts(wish.spec)
        backends = self.backends
        backend = backends.named(wish.backend) if wish.backend else backends.hosting(wish.spec)
        record = born(
            wish.sandbox_id or new_sandbox_id(),
            wish.spec,
            backend=backend.name,
            at=self.ledger.now(),
            lease_s=wish.lease_s,
            idle_timeout_s=wish.idle_timeout_s,
        )
        tenant = self.ledger.tenant()
        ownership, site = self.ledger.ownership, site_of(part_of(backend, tenant))
        return replace(
            record,
            tenant=tenant,
            environment=wish.environment,
            labels=wish.labels,
            idempotency_key=wish.key,
            request_digest=wish.digest,
            snapshot_id=wish.snapshot_id,
            durable=self.durable and not wish.ephemeral,
            episode=wish.episode,
            owner=ownership.id,
            folder=site if site in ownership.sites else ownership.folder,
        )

    async def _made_before(self, stored: SandboxRecord, wish: SandboxWish) -> SandboxRecord:
        if stored.request_digest != wish.digest:
            raise FailedPrecondition(
                f"idempotency key {wish.key!r} was used for another Create; take a new one"
            )
        held = self.ledger.held.get(stored.id)
        if held is None:
            settled = await self.ledger.ownership.settled(stored)
            return await self._create(wish) if settled is None else settled
        await held.started.wait()
        if held.error is not None:
            raise held.error
        return held.record

    async def _renew(self, sandbox_id: str, lease_s: float) -> SandboxRecord:
        held = await self.ledger.find_held(sandbox_id)
        async with held.lock:
            if held.released:
                raise elsewhere(held.record)
            held.last_used_at = now = self.ledger.now()
            record = renewed(held.record, lease_s=lease_s, at=now)
            if held.away:
                raise _away(held)  # the box would end by its former lease
            if held.box is not None:
                async with box_call(f"renewing the lease of sandbox {sandbox_id}"):
                    await held.box.lease(lease_s + NODE_GRACE_S)
            await self.ledger.save(held, record)
            self.ledger.lease_began(held)
            return held.record

    async def _halt(self, sandbox_id: str, to: SandboxState, reason: str) -> SandboxRecord:
        """Pause or resume; the box first, so that a stored PAUSED means that it stands still."""
        held = await self.ledger.find_held(sandbox_id)
        async with held.lock:
            if held.released:
                raise elsewhere(held.record)
            if held.record.state is to:
                return held.record
            record, box = transition(held.record, to, at=self.ledger.now(), reason=reason), held.box
            if held.away:
                raise _away(held)
            if box is None:
                raise FailedPrecondition(
                    f"sandbox {sandbox_id!r} is {held.record.state}; wait until it is RUNNING"
                )
            act, undo = (box.pause, box.resume) if to is SandboxState.PAUSED else (box.resume, box.pause)
            async with box_call(f"{act.__name__} of sandbox {sandbox_id}"):
                await act()
            held.last_used_at = self.ledger.now()
            try:
                await self.ledger.save(held, kept_busy(record, last_used_at=held.last_used_at))
            except RockError:
                with suppress(RockError):  # the store's error is the one to report
                    await undo()
                raise
            return held.record

    def _due(self, sandbox_id: str) -> None:
        held = self.ledger.held.get(sandbox_id)
        if held is not None:
            deadline = next_deadline(self.ledger.due_record(held))
            if deadline.at <= self.ledger.now():
                held.give_up(_ended_early(held, deadline.kind))
            self.tasks.spawn(logged(self.lives.expire(held)))


def _stopping() -> Unavailable:
    return Unavailable("the server is stopping. Create the sandbox on another one, or once it is back.")


def _ended_early(held: HeldSandbox, why: str) -> FailedPrecondition:
    doing = "waited for a place" if held.waiting is not None else "was being made"
    return FailedPrecondition(f"sandbox {held.record.id!r} ended while it {doing}: {why}")


def _away(held: HeldSandbox) -> Unavailable:
    return Unavailable(
        f"sandbox {held.record.id!r} cannot be reached since the server restarted: {held.away} "
        "It is tried again every minute."
    )
