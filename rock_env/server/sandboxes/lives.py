"""How a sandbox's box comes, is taken up again, and goes: start, loss, deadline and destruction, each recorded.

Used by `core`, `checkpoints` and `reconcile`. The box first, then the record where the record claims that
something is done; the record first where it announces what will be done.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from rock_env.backends.base import Backend, part_of
from rock_env.backends.router import BackendRouter
from rock_env.errors import FailedPrecondition, InfraError, RockError, Unavailable, plugin_call
from rock_env.lifecycle import (
    DeadlineKind,
    SandboxRecord,
    SandboxState,
    kept_busy,
    next_deadline,
    noted,
    transition,
)
from rock_env.sandbox import Sandbox
from rock_env.server.capacity.admission import DEFAULT_WAIT_S, Admission, Grant
from rock_env.server.capacity.quotas import Ask
from rock_env.server.own_tasks import OwnTasks, logged
from rock_env.server.sandboxes.box_call import box_call
from rock_env.server.sandboxes.layers import LayerReferences
from rock_env.server.sandboxes.ledger import RETRY_S, HeldSandbox, Ledger
from rock_env.server.sandboxes.ownership import elsewhere
from rock_env.spec import SandboxSpec

__all__ = ["NODE_GRACE_S", "TAKEN_UP", "WORKING", "Lives", "Pin", "Provide"]

log = logging.getLogger(__name__)

WORKING = frozenset({SandboxState.RUNNING, SandboxState.PAUSED})
NODE_GRACE_S = 2.0
"""How much later than the server the box itself acts on its lease: while the server lives, it is to say why."""
_START_GRACE_S = 10.0
"""How long after its lease the start of a box that was to end by then may still last: a slow machine needs a second."""
TAKEN_UP = "taken up again after a restart"
WAITING = "waiting for a place"
GONE = "its box was gone after a restart"
_HELD_ELSEWHERE = "its sandboxes on other servers hold the rest of its quota"


Pin = Callable[[str, SandboxSpec], Awaitable[SandboxSpec]]
"""Given a tenant and a spec, returns the spec with its image's content digest in place of a name."""
Provide = Callable[[str, SandboxSpec], SandboxSpec]
"""Given a tenant and a spec, returns the spec with what this server has for its boxes, whatever they start from."""


class Lives:
    """Everything that makes or ends boxes on one server."""

    def __init__(
        self,
        ledger: Ledger,
        backends: BackendRouter,
        layers: LayerReferences,
        tasks: OwnTasks,
        *,
        admission: Admission,
        pin: Pin,
        provide: Provide,
    ) -> None:
        """`pin` resolves the image that a tenant named and all else that `provide` does."""
        self.admission = admission
        self._pin = pin
        self._provide = provide
        self._ledger = ledger
        self._backends = backends
        self._layers = layers
        self._tasks = tasks
        self._listening = OwnTasks()

    async def close(self) -> None:
        """Listen to no box any more, so that letting go of it is not taken for its loss."""
        await self._listening.finish(0)

    # -- coming

    async def start(self, held: HeldSandbox, *, wait_s: float | None = None) -> None:
        """Make the box of a record that is STARTING, once it has a place on the node.

        Raise what the backend refused it with, or `ResourceExhausted` after `wait_s`, and bury the record.
        """
        try:
            await self._place(held, wait_s)
            record = held.record
            held.making = self._tasks.spawn(self._make(record))
            try:
                held.box, spec = await held.given(held.making)
            finally:
                held.making = None
            held.last_used_at = self._ledger.now()
            running = transition(record, SandboxState.RUNNING, at=held.last_used_at, reason="started")
            running = replace(running, box_id=held.box.id, spec=spec)
            await self._ledger.save(held, kept_busy(running, last_used_at=held.last_used_at))
        except RockError as error:
            held.error = error
            await logged(self._bury(held, error.message))
            raise
        self.listen(held, held.box)

    async def _make(self, record: SandboxRecord) -> tuple[Sandbox, SandboxSpec]:
        """Return the box and what it was made by. Raise `InfraError` where that takes longer than the box was to live."""
        async with box_call(
            f"creating sandbox {record.id}", within_s=self.node_end_s(record) + _START_GRACE_S
        ):
            # A snapshot's image was pinned when the sandbox it was made of started.
            if record.snapshot_id:
                spec = self._provide(record.tenant, record.spec)
            else:
                spec = await self._pin(record.tenant, record.spec)
            backend = part_of(self._backends.named(record.backend), record.tenant)
            box = await backend.create(
                spec,
                sandbox_id=record.box_id,
                snapshot=record.snapshot_id,
                durable=record.durable,
                lease_s=self.node_lease_s(record),
            )
        return box, spec

    async def _place(self, held: HeldSandbox, wait_s: float | None) -> None:
        """Get the sandbox a place, unless it came with one; where it must wait, its history says so."""
        record, places = held.record, self._ledger.ownership.places
        limits = self.admission.quota(record.tenant).limits
        asks = [Ask.of(record.spec.resources)]
        if held.place is not None:  # as one of a group, which all get theirs now or none does
            if places is not None and not await places.take(record, limits):
                raise self.admission.refusal(record.tenant, asks, _HELD_ELSEWHERE)
            return
        held.place = self.admission.admit_now(record.tenant, asks)
        if held.place is not None and (places is None or await places.take(record, limits)):
            return
        await self._ledger.save(held, noted(record, at=self._ledger.now(), reason=WAITING))
        held.waiting = self._tasks.spawn(self._wait_for_place(held, asks, wait_s))
        try:
            held.place = await held.given(held.waiting)
        finally:
            held.waiting = None

    async def _wait_for_place(self, held: HeldSandbox, asks: Sequence[Ask], wait_s: float | None) -> Grant:
        """Return a place on this node that is within the tenant's quota over all servers, too."""
        record, places = held.record, self._ledger.ownership.places
        if places is None:
            return await self.admission.admit(record.tenant, asks, timeout_s=wait_s)
        held.free()  # what waits for other servers keeps nobody out here
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + (DEFAULT_WAIT_S if wait_s is None else wait_s)
        with places.given_back() as told:
            while True:
                told.clear()
                left_s = max(give_up_at - loop.time(), 0.0)
                grant = await self.admission.admit(record.tenant, asks, timeout_s=left_s)
                try:
                    if await places.take(record, self.admission.quota(record.tenant).limits):
                        return grant
                except BaseException:
                    grant.release()
                    raise
                grant.release()
                try:
                    async with asyncio.timeout_at(give_up_at):
                        await told.wait()
                except TimeoutError:
                    raise self.admission.refusal(record.tenant, asks, _HELD_ELSEWHERE) from None

    def node_lease_s(self, record: SandboxRecord) -> float | None:
        """Return when, from now, the box is to end by itself; None: by its lifetime alone."""
        if record.lease_expires_at is None:
            return None
        return max(record.lease_expires_at - self._ledger.now(), 0.0) + NODE_GRACE_S

    def node_end_s(self, record: SandboxRecord) -> float:
        """Return when, from now, a box is to end by itself at the latest: by its lease, else by its lifetime."""
        lease_s = self.node_lease_s(record)
        return max(record.expires_at - self._ledger.now(), 0.0) + NODE_GRACE_S if lease_s is None else lease_s

    def listen(self, held: HeldSandbox, box: Sandbox) -> None:
        """Record the loss of a box when it happens."""
        self._listening.spawn(logged(self._await_loss(held, box)))

    async def take_up(self, held: HeldSandbox) -> None:
        """Connect to a durable box of an earlier server, or record that it is gone. Call it with the lock held."""
        record = held.record
        try:
            backend = self._backends.named(record.backend)
            box = await self._adopted(held, backend)
        except (
            Unavailable,
            FailedPrecondition,
        ) as error:  # the engine is not there: that says nothing of the box
            held.away = error.message
            log.warning("a sandbox cannot be reached sandbox_id=%s: %s", record.id, error)
            self._ledger.look_again(held)
            return
        except RockError as error:
            await self._ledger.move(held, SandboxState.FAILED, f"lost in a restart: {error.message}")
            return
        held.away = ""
        if box is None:
            deadline = next_deadline(record)
            due = deadline.at <= self._ledger.now() and deadline.kind is not DeadlineKind.IDLE
            await self.end_gone(held, backend, deadline.kind if due else GONE)
            return
        held.box = box
        held.last_used_at = now = self._ledger.now()  # what was done shortly before the restart is not known
        left = record.leaving_snapshot_id
        record = replace(record, leaving_snapshot_id="", restoring=False, box_id=box.id)
        await self._ledger.save(held, noted(record, at=now, reason=TAKEN_UP))
        self.listen(held, box)
        await logged(self._layers.collect(left))

    async def _adopted(self, held: HeldSandbox, backend: Backend) -> Sandbox | None:
        record = held.record
        async with box_call(f"taking up sandbox {record.id}"):
            box = await backend.adopt(record.box_id, spec=record.spec)
            if box is not None and record.restoring:
                # It was being restored when the server was killed, and nobody knows how far that got.
                box = await backend.restore(record.box_id, snapshot=record.snapshot_id)
            if box is not None and record.state is SandboxState.RUNNING:
                await box.resume()  # a Pause that was never recorded
            elif box is not None:
                await box.pause()
            if box is not None and (lease_s := self.node_lease_s(record)) is not None:
                await box.lease(lease_s)
        return box

    # -- going

    async def release(self, held: HeldSandbox, *, owner: str | None) -> None:
        """Let go of a box that lives on, for the servers `owner` stands for; None: the record is another's already.

        Call it with the lock held.
        """
        box, held.box, held.released = held.box, None, True
        self._ledger.held.pop(held.record.id, None)
        self._ledger.deadlines.discard(held.record.id)
        held.free()
        if box is not None and owner is None:
            # The other server has replaced this connection, and why the box hung up may take a while to find out.
            self._tasks.spawn(logged(box.let_go()))
        elif box is not None:
            with plugin_call(f"letting go of sandbox {held.record.id}"):
                await box.let_go()
        if owner is not None:
            await self._ledger.store.save(replace(held.record, owner=owner))

    async def end_gone(self, held: HeldSandbox, backend: Backend, reason: str) -> None:
        """Record the end of a sandbox whose box went while no server looked."""
        record = held.record
        async with box_call(f"destroying what is left of sandbox {record.id}"):
            await backend.destroy(record.box_id)
        held.free()
        await self._end(held, self.ended(record, reason))

    def ended(self, record: SandboxRecord, reason: str) -> SandboxRecord:
        """Return the record of a box that is gone and was not meant to be."""
        way = (SandboxState.FAILED, SandboxState.DELETING, SandboxState.DELETED)
        passed = {SandboxState.FAILED: 1, SandboxState.DELETING: 2}.get(record.state, 0)
        for state in way[passed:]:
            record = transition(record, state, at=self._ledger.now(), reason=reason)
        return record

    async def destroy(
        self, held: HeldSandbox, reason: str, *, only: Callable[[SandboxRecord], bool] | None = None
    ) -> None:
        """Destroy the box and record it, if `only` says so of the record once it can no longer change.

        Raise `InfraError` if that failed; it is tried again until it is done.
        """
        async with held.lock:
            if only is None or only(held.record):
                await self.destroy_locked(held, reason)

    async def destroy_locked(self, held: HeldSandbox, reason: str) -> None:
        """Do what `destroy` does; the lock is the caller's."""
        record = held.record
        if held.released:
            raise elsewhere(record)
        if record.state is SandboxState.DELETED:
            return
        held.doomed = held.doomed or reason
        if held.error is not None:
            record = replace(record, idempotency_key="")
        if record.state is not SandboxState.DELETING:
            record = transition(record, SandboxState.DELETING, at=self._ledger.now(), reason=reason)
            try:
                await self._ledger.save(held, record)
            except RockError as error:
                if await self._is_anothers(record):
                    held.doomed = ""
                    raise elsewhere(record) from error
                # The box must go all the same; both changes are stored together below.
                log.error("a sandbox is being deleted unrecorded sandbox_id=%s: %s", record.id, error)
                held.record = record
        try:
            await self._remove_box(held)
            record = transition(held.record, SandboxState.DELETED, at=self._ledger.now(), reason=reason)
            await self._end(held, record)
        except RockError as error:
            self._ledger.look_again(held)
            kind = (
                Unavailable if isinstance(error, Unavailable) else InfraError
            )  # the former is worth asking again
            raise kind(f"sandbox {record.id!r} could not be deleted: {error.message}") from error

    async def _is_anothers(self, record: SandboxRecord) -> bool:
        """Return whether another server took the sandbox up, as one does whose server was stopped for a while."""
        try:
            stored = await self._ledger.store.get(record.id)
        except RockError:  # nobody can take it up now
            return False
        return stored is not None and stored.owner != record.owner

    async def expire(self, held: HeldSandbox) -> None:
        """Do what a sandbox's deadline asks for, now that one has come or something was to be tried again."""
        async with held.lock:  # a Renew that was first has moved the deadline
            if held.released:
                return
            record, now = self._ledger.due_record(held), self._ledger.now()
            deadline = next_deadline(record)
            if held.doomed:
                await self.destroy_locked(held, held.doomed)
            elif deadline.at > now:
                self._ledger.watch_deadline(record)
                if held.away:
                    await self.take_up(held)
                elif record is not held.record:  # the box is not to end before
                    await self._lengthen(held, self.node_end_s(record))
            elif deadline.kind is DeadlineKind.LEASE and self._ledger.ownership.shared:
                await self._expire_lease(held)
            elif deadline.kind is not DeadlineKind.IDLE or not await self._was_used(held, now):
                await self.destroy_locked(held, deadline.kind)

    async def _expire_lease(self, held: HeldSandbox) -> None:
        """Destroy the box, unless the store is away just now or has been: then its lease is not over yet."""
        await self._lengthen(held, RETRY_S + NODE_GRACE_S)
        try:
            await self._ledger.store.revision()
        except RockError:
            self._ledger.look_again(held)
            return
        record = self._ledger.due_record(held)
        if next_deadline(record).at > self._ledger.now():
            self._ledger.watch_deadline(record)
            await self._lengthen(held, self.node_end_s(record))
        else:
            await self.destroy_locked(held, DeadlineKind.LEASE)

    async def _lengthen(self, held: HeldSandbox, lease_s: float) -> None:
        """Let the box end by itself so much later; one that does not answer is left as it is."""
        if held.box is not None:
            with suppress(RockError):
                async with box_call(f"keeping sandbox {held.record.id}", within_s=NODE_GRACE_S):
                    await held.box.lease(lease_s)

    async def _was_used(self, held: HeldSandbox, now: float) -> bool:
        """Return whether a sandbox was used within its idle timeout, and store the next time to look if so."""
        if held.users or held.record.state is SandboxState.PAUSED:
            held.last_used_at = now
        busy = kept_busy(held.record, last_used_at=held.last_used_at)
        if busy.idle_expires_at is None or busy.idle_expires_at <= now:
            return False
        await self._ledger.save(held, busy)
        return True

    async def _bury(self, held: HeldSandbox, reason: str) -> None:
        """Delete a sandbox that never ran, and free its key for another try."""
        held.doomed = reason
        self._ledger.look_again(held)
        if held.box is not None:
            await self._remove_box(held)
        held.free()
        await self._end(held, self.ended(replace(held.record, idempotency_key=""), reason))

    async def _remove_box(self, held: HeldSandbox) -> None:
        record, box = held.record, held.box
        async with box_call(f"closing sandbox {record.id}"):
            if box is None:
                await self._backends.named(record.backend).destroy(record.box_id)
            else:
                await box.close()
        held.box = None
        held.free()

    async def _end(self, held: HeldSandbox, record: SandboxRecord) -> None:
        if (
            record.episode
        ):  # what its rules remember is of no more use, and the last records are kept for long
            record = replace(record, episode=b"")
        await self._ledger.save(held, record)
        self._ledger.held.pop(record.id, None)
        for snapshot_id in {record.snapshot_id, record.leaving_snapshot_id}:
            await logged(self._layers.collect(snapshot_id))

    async def _await_loss(self, held: HeldSandbox, box: Sandbox) -> None:
        reason = await box.lost()
        async with held.lock:
            if held.box is box and held.record.state in WORKING:
                await self._ledger.move(held, SandboxState.FAILED, reason)
