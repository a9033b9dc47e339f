"""The sandboxes of this server that are not deleted: their records as stored last, their boxes, and who hears of changes.

Shared by the parts of the sandbox core (`core`, `lives`, `checkpoints`, `reconcile`). A change is stored here
before it is told to anyone; what change to make is decided elsewhere.

Times are wall-clock seconds, but read once at the start and counted on by the monotonic clock: a clock that is set
forward ends no sandbox early.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from rock_env.errors import FailedPrecondition, NotFound, RockError
from rock_env.lifecycle import SandboxRecord, SandboxState, next_deadline, transition
from rock_env.sandbox import Sandbox
from rock_env.server.capacity.admission import Grant
from rock_env.server.sandboxes.deadlines import DeadlineTimer
from rock_env.server.sandboxes.ownership import Alone, Ownership, elsewhere
from rock_env.server.sandboxes.watchers import Watchers
from rock_env.store.base import Overtaken, SandboxStore

__all__ = ["LIVE", "RETRY_S", "HeldSandbox", "Ledger"]

T = TypeVar("T")

LIVE = frozenset(SandboxState) - {SandboxState.DELETED}
RETRY_S = 60.0
"""When to try again to end a sandbox that could not be ended, or to reach one whose engine is not there."""


class HeldSandbox:
    """One sandbox that is not deleted, with its box; changed under its lock only."""

    def __init__(self, record: SandboxRecord) -> None:
        self.record = record
        self.lock = asyncio.Lock()
        self.box: Sandbox | None = None
        self.started = asyncio.Event()
        """Set when its start ended, well or badly."""
        self.error: RockError | None = None
        """Why it did not start."""
        self.away = ""
        """Why its box, which may well live, cannot be reached since a restart."""
        self.doomed = ""
        """Why it is to be deleted, once that was decided: it is tried again until it is done."""
        self.place: Grant | None = None
        """Its place on the node, held until the box is gone."""
        self.waiting: asyncio.Task[Grant] | None = None
        """Waits for a place; whoever ends the sandbox ends that by `give_up`, so as not to wait with it."""
        self.making: asyncio.Task[Any] | None = None
        """Makes its box; whoever deletes the sandbox ends that by `abandon`."""
        self.given_up: RockError | None = None
        self.released = False
        """It is another server's by now: whoever still has it in hand must ask anew."""
        self.users = 0
        self.idle = asyncio.Event()
        """Set while no call uses it."""
        self.idle.set()
        self.last_used_at = record.created_at
        self.away_before_s = 0.0
        """How long the store had been away, in all, when its lease began."""

    def give_up(self, why: RockError) -> None:
        """End its wait for a place, if it is waiting, by this error."""
        if self.waiting is not None:
            self.given_up = why
            self.waiting.cancel()

    def abandon(self, why: RockError) -> None:
        """End its start by this error, whatever it waits for."""
        self.give_up(why)
        if self.making is not None:
            self.given_up = why
            self.making.cancel()

    async def given(self, task: asyncio.Task[T]) -> T:
        """Return what a task of its start comes to. Raise what the sandbox was given up by meanwhile."""
        try:
            return await task
        except asyncio.CancelledError:
            if self.given_up is None:
                raise
            raise self.given_up from None

    def free(self) -> None:
        """Give the place back, now that the box is gone. Safe to call twice."""
        if self.place is not None:
            self.place.release()


class Ledger:
    """Open it on the event loop, close it there. `due` is called with the id of a sandbox whose deadline came."""

    def __init__(
        self,
        store: SandboxStore,
        *,
        tenant: Callable[[], str],
        due: Callable[[str], None],
        ownership: Ownership | None = None,
    ) -> None:
        self.store = store
        self.ownership: Ownership = Alone() if ownership is None else ownership
        self.tenant = tenant
        self.held: dict[str, HeldSandbox] = {}
        self.watchers = Watchers()
        self.deadlines = DeadlineTimer(due)
        self.revision = 0
        self._clock_offset_s = 0.0

    def open(self) -> None:
        """Read the clock, once."""
        self._clock_offset_s = time.time() - asyncio.get_running_loop().time()

    def now(self) -> float:
        """Return the time in seconds since the epoch."""
        return self._clock_offset_s + asyncio.get_running_loop().time()

    def hold(self, record: SandboxRecord) -> HeldSandbox:
        """Have a sandbox from now on."""
        held = self.held[record.id] = HeldSandbox(record)
        self.lease_began(held)
        return held

    def lease_began(self, held: HeldSandbox) -> None:
        """Count from now on how long the store is away while the sandbox's lease runs."""
        held.away_before_s = self.ownership.away_s()

    def due_record(self, held: HeldSandbox) -> SandboxRecord:
        """Return the record with its lease as late as the store was away meanwhile: nobody could renew it then."""
        record, away_s = held.record, self.ownership.away_s() - held.away_before_s
        if record.lease_expires_at is None or not away_s:
            return record
        return replace(record, lease_expires_at=record.lease_expires_at + away_s)

    async def save(self, held: HeldSandbox, record: SandboxRecord) -> None:
        """Store a sandbox's changed record, then tell."""
        try:
            held.record = await self.store.save(record)
        except Overtaken as error:
            if (
                self.ownership.shared
            ):  # nobody changes a record that is another server's: this one was taken over
                raise elsewhere(record) from error
            raise
        self.tell(held.record)

    async def move(self, held: HeldSandbox, to: SandboxState, reason: str) -> None:
        """Store a sandbox's next state, then tell."""
        await self.save(held, transition(held.record, to, at=self.now(), reason=reason))

    def heard(self, record: SandboxRecord) -> None:
        """Push a stored change to those who watch."""
        self.revision = max(self.revision, record.revision)
        self.watchers.publish(record)

    def tell(self, record: SandboxRecord) -> None:
        """Push a change of this server to those who watch, and watch its next deadline."""
        if not self.ownership.shared:  # else the store tells of all servers' changes, in their one order
            self.heard(record)
        if record.state in LIVE:
            self.watch_deadline(record)
        else:
            self.deadlines.discard(record.id)

    def watch_deadline(self, record: SandboxRecord) -> None:
        """Set the timer to the record's earliest deadline."""
        self.deadlines.set(record.id, next_deadline(record).at - self._clock_offset_s)

    def look_again(self, held: HeldSandbox) -> None:
        """Have `due` called for a sandbox after a while, or at its deadline if that comes first."""
        again = asyncio.get_running_loop().time() + RETRY_S
        deadline = next_deadline(self.due_record(held)).at - self._clock_offset_s
        self.deadlines.set(held.record.id, again if held.doomed else min(again, deadline))

    def visible(self, sandbox_id: str) -> HeldSandbox | None:
        """Return a sandbox of the present tenant, if it is not deleted."""
        held = self.held.get(sandbox_id)
        return held if held is not None and held.record.tenant == self.tenant() else None

    async def get(self, sandbox_id: str) -> SandboxRecord:
        """Return the record. Raise `NotFound` for an id that is unknown, another tenant's or deleted long ago."""
        held = self.held.get(sandbox_id)
        record = await self.store.get(sandbox_id) if held is None else held.record
        if record is None or record.tenant != self.tenant():
            raise NotFound(f"no sandbox {sandbox_id!r} on this server; List shows those there are")
        return record

    async def find_held(self, sandbox_id: str) -> HeldSandbox:
        """Return a sandbox that can be changed. Raise `NotFound`, or `FailedPrecondition` if it is deleted."""
        held = self.visible(sandbox_id)
        if held is None:
            record = await self.get(sandbox_id)
            if record.state in LIVE:
                raise elsewhere(record)
            raise FailedPrecondition(f"sandbox {sandbox_id!r} is {record.state} ({record.reason})")
        return held
