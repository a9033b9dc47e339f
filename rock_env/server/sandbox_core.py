"""The sandboxes of one server: records in the store, boxes on the backend, and the deadlines between them.

Called by the gRPC adapter (`server/sandbox_service`). A change is stored before it is answered or told to anyone; it
runs in a task of the core's own, so a caller that hangs up leaves nothing half done. What a running box does (commands,
files) passes by here only to be counted as use.

Times are wall-clock seconds, but read once at the start and counted on by the monotonic clock: a clock that is set
forward ends no sandbox early.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar, runtime_checkable

from rock_env.backends.base import Backend
from rock_env.backends.guest_link import Command, FileEntry
from rock_env.errors import FailedPrecondition, InfraError, NotFound, RockError, Unavailable, Unimplemented
from rock_env.journal import plugin_call
from rock_env.lifecycle import (
    DeadlineKind,
    SandboxRecord,
    SandboxState,
    born,
    kept_busy,
    next_deadline,
    renewed,
    transition,
)
from rock_env.sandbox import Sandbox
from rock_env.server.deadlines import DeadlineTimer
from rock_env.server.watchers import Watchers
from rock_env.spec import SandboxSpec
from rock_env.store.base import Query, SandboxStore

__all__ = ["LIVE", "SandboxCore", "SandboxWish", "ServedSandbox"]

log = logging.getLogger(__name__)

LIVE = frozenset(SandboxState) - {SandboxState.DELETED}
_USABLE = {SandboxState.RUNNING, SandboxState.FAILED}
"""States whose box takes calls; a failed one answers each with why it failed."""
_RETRY_S = 60.0
"""When to try again to end a sandbox that could not be ended."""
_STOP_S = 3.0
"""How long changes in progress may take to finish when the server stops."""

T = TypeVar("T")


@runtime_checkable
class ServedSandbox(Sandbox, Protocol):
    """What the SandboxService needs of a box beyond `Sandbox`."""

    async def lost(self) -> str: ...
    async def pause(self) -> None: ...
    async def resume(self) -> None: ...
    def start(
        self,
        argv: Any,
        *,
        env: Any = None,
        cwd: Any = None,
        timeout_s: float = ...,
        max_output_bytes: int = ...,
    ) -> Command: ...
    async def read_range(self, path: str, *, offset: int, length: int) -> bytes: ...
    async def write_file(
        self, path: str, content: bytes, *, mode: int = 0o644, append: bool = False
    ) -> None: ...
    async def stat(self, path: str) -> FileEntry: ...
    async def list_files(self, path: str, *, recursive: bool = False) -> list[FileEntry]: ...


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


class _Held:
    """One sandbox that is not deleted, with its box; changed under its lock only."""

    def __init__(self, record: SandboxRecord) -> None:
        self.record = record
        self.lock = asyncio.Lock()
        self.box: ServedSandbox | None = None
        self.started = asyncio.Event()
        """Set when its start ended, well or badly."""
        self.error: RockError | None = None
        """Why it did not start."""
        self.doomed = ""
        """Why it is to be deleted, once that was decided: it is tried again until it is done."""
        self.users = 0
        self.last_used_at = record.created_at


class SandboxCore:
    """Create it with a backend and an open store, both the caller's to close, and enter it on the event loop.

    `tenant` tells for whom the present call is made; nobody sees, uses or changes another tenant's sandboxes.
    """

    def __init__(
        self, backend: Backend, store: SandboxStore, *, tenant: Callable[[], str] = lambda: ""
    ) -> None:
        self._tenant = tenant
        self._backend = backend
        self._backend_name = type(backend).__name__.removesuffix("Backend").lower()
        self._store = store
        self._held: dict[str, _Held] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._listening: set[asyncio.Task[None]] = set()
        self._watchers = Watchers()
        self._deadlines = DeadlineTimer(self._due)
        self._started_at = 0.0
        self._revision = 0
        self._stopping = False

    async def __aenter__(self) -> SandboxCore:
        self._started_at = time.time() - asyncio.get_running_loop().time()
        await self._reconcile()
        self._revision = await self._store.revision()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Delete every sandbox, with the reason in its history."""
        self.stop()
        self._deadlines.close()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_STOP_S)
        for task in tuple(self._tasks):
            task.cancel()
        async with asyncio.TaskGroup() as group:
            for held in tuple(self._held.values()):
                group.create_task(self._logged(self._destroy(held, "the server stopped")))
        for task in tuple(self._listening):
            task.cancel()

    def stop(self) -> None:
        """Take no more sandboxes and end the watches, so that the server can stop."""
        self._stopping = True
        self._watchers.end()

    # -- the calls

    async def create(self, wish: SandboxWish) -> SandboxRecord:
        """Return a running sandbox: a new one, or the one that this key made, in whatever state it is by now.

        A Create that failed made nothing and leaves its key free.
        """
        return await self._own(self._create(wish))

    async def get(self, sandbox_id: str) -> SandboxRecord:
        """Return the record. Raise `NotFound` for an id that is unknown or deleted long ago."""
        held = self._held.get(sandbox_id)
        record = await self._store.get(sandbox_id) if held is None else held.record
        if record is None or record.tenant != self._tenant():
            raise NotFound(f"no sandbox {sandbox_id!r} on this server; List shows those there are")
        return record

    async def find(self, query: Query) -> Sequence[SandboxRecord]:
        """Return the tenant's matching records by ascending id."""
        return await self._store.find(replace(query, tenant=self._tenant()))

    async def watch(self, labels: Mapping[str, str], *, after_revision: int) -> AsyncGenerator[SandboxRecord]:
        """Yield what changed after the revision (0: every live sandbox), then each change as it happens.

        Raise `FailedPrecondition` for a revision this store has not reached, else as `Watcher` does.
        """
        if after_revision > self._revision:
            raise FailedPrecondition(
                f"after_revision is {after_revision}, but the latest change here is {self._revision}: "
                "the server lost its store or is another one. Watch from 0."
            )
        watcher = self._watchers.add(self._tenant(), labels)
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
            self._watchers.remove(watcher)

    async def delete(self, sandbox_id: str) -> SandboxRecord:
        """Destroy the box; deleting what is deleted returns its record."""
        held = self._visible(sandbox_id)
        if held is None:
            return await self.get(sandbox_id)
        await self._own(self._destroy(held, "deleted by its user"))
        return held.record

    async def renew(self, sandbox_id: str, lease_s: float) -> SandboxRecord:
        """Let the lease end `lease_s` from now. Raise `FailedPrecondition` where the box cannot be used any more."""
        return await self._own(self._renew(sandbox_id, lease_s))

    async def pause(self, sandbox_id: str) -> SandboxRecord:
        """Stop every process of the box; pausing what is paused returns its record."""
        return await self._own(self._halt(sandbox_id, SandboxState.PAUSED, "paused by its user"))

    async def resume(self, sandbox_id: str) -> SandboxRecord:
        """Let the processes of the box go on; resuming what runs returns its record."""
        return await self._own(self._halt(sandbox_id, SandboxState.RUNNING, "resumed by its user"))

    @asynccontextmanager
    async def using(self, sandbox_id: str) -> AsyncIterator[ServedSandbox]:
        """Give the box to one call; it is not idle meanwhile. Raise `NotFound` or `FailedPrecondition`."""
        held = self._visible(sandbox_id)
        state = (await self.get(sandbox_id)).state if held is None else held.record.state
        if held is None or state in (SandboxState.DELETING, SandboxState.DELETED):
            record = await self.get(sandbox_id)
            raise NotFound(f"sandbox {sandbox_id!r} is {record.state} ({record.reason})")
        if state not in _USABLE or held.box is None:
            remedy = "Resume it first" if state is SandboxState.PAUSED else "Wait until it is RUNNING"
            raise FailedPrecondition(f"sandbox {sandbox_id!r} is {state} ({held.record.reason}). {remedy}.")
        held.users += 1
        try:
            yield held.box
        finally:
            held.users -= 1
            held.last_used_at = self._now()

    # -- how they are done

    def _now(self) -> float:
        return self._started_at + asyncio.get_running_loop().time()

    async def _own(self, act: Coroutine[Any, Any, T]) -> T:
        task = self._spawn(act, self._tasks)
        # A caller that hung up does not ask for the outcome.
        task.add_done_callback(lambda done: None if done.cancelled() else done.exception() and None)
        return await asyncio.shield(task)

    def _spawn(self, act: Coroutine[Any, Any, T], kept: set[asyncio.Task[Any]]) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(act)
        kept.add(task)
        task.add_done_callback(kept.discard)
        return task

    async def _logged(self, act: Coroutine[Any, Any, Any]) -> None:
        try:
            await act
        except RockError as error:
            log.error("a sandbox could not be changed: %s", error)

    async def _save(self, held: _Held, record: SandboxRecord) -> None:
        held.record = await self._store.save(record)
        self._tell(held.record)

    def _tell(self, record: SandboxRecord) -> None:
        self._revision = max(self._revision, record.revision)
        self._watchers.publish(record)
        if record.state in LIVE:
            self._deadlines.set(record.id, next_deadline(record).at - self._started_at)
        else:
            self._deadlines.discard(record.id)

    async def _move(self, held: _Held, to: SandboxState, reason: str) -> None:
        await self._save(held, transition(held.record, to, at=self._now(), reason=reason))

    async def _create(self, wish: SandboxWish) -> SandboxRecord:
        if self._stopping:
            raise Unavailable(
                "the server is stopping. Create the sandbox on another one, or once it is back."
            )
        record = born(
            f"sb-{secrets.token_hex(8)}",
            wish.spec,
            backend=self._backend_name,
            at=self._now(),
            lease_s=wish.lease_s,
            idle_timeout_s=wish.idle_timeout_s,
        )
        record = replace(
            record,
            tenant=self._tenant(),
            environment=wish.environment,
            labels=wish.labels,
            idempotency_key=wish.key,
            request_digest=wish.digest,
        )
        held = self._held[record.id] = _Held(record)  # before it is stored: who finds it there finds it here
        async with held.lock:
            try:
                stored = await self._store.add(record)
                if stored.id == record.id:
                    held.record = stored
                    self._tell(stored)
                    await self._start(held)
                    return held.record
            finally:
                held.started.set()
                if held.record.revision == 0 or held.record.state not in LIVE:
                    del self._held[record.id]
        return await self._made_before(stored, wish)

    async def _made_before(self, stored: SandboxRecord, wish: SandboxWish) -> SandboxRecord:
        if stored.request_digest != wish.digest:
            raise FailedPrecondition(
                f"idempotency key {wish.key!r} was used for another Create; take a new one"
            )
        held = self._held.get(stored.id)
        if held is None:
            return await self.get(stored.id)
        await held.started.wait()
        if held.error is not None:
            raise held.error
        return held.record

    async def _start(self, held: _Held) -> None:
        record = held.record
        try:
            with plugin_call(f"creating sandbox {record.id}"):
                box = await self._backend.create(record.spec, sandbox_id=record.id)
            if not isinstance(box, ServedSandbox):
                await box.close()
                raise Unimplemented(
                    f"the {self._backend_name} backend's sandboxes can only be used through an environment"
                )
            held.box = box
            held.last_used_at = self._now()
            running = transition(held.record, SandboxState.RUNNING, at=held.last_used_at, reason="started")
            await self._save(held, kept_busy(running, last_used_at=held.last_used_at))
        except RockError as error:
            held.error = error
            await self._logged(self._bury(held, error.message))
            raise
        self._spawn(self._logged(self._await_loss(held, box)), self._listening)

    async def _bury(self, held: _Held, reason: str) -> None:
        """Delete a sandbox that never ran, and free its key for another try."""
        held.doomed = reason
        self._deadlines.set(held.record.id, asyncio.get_running_loop().time() + _RETRY_S)
        if held.box is not None:
            with plugin_call(f"closing sandbox {held.record.id}"):
                await held.box.close()
        await self._save(held, self._ended(replace(held.record, idempotency_key=""), reason))

    def _ended(self, record: SandboxRecord, reason: str) -> SandboxRecord:
        """Return the record of a box that is gone and was not meant to be."""
        way = (SandboxState.FAILED, SandboxState.DELETING, SandboxState.DELETED)
        passed = {SandboxState.FAILED: 1, SandboxState.DELETING: 2}.get(record.state, 0)
        for state in way[passed:]:
            record = transition(record, state, at=self._now(), reason=reason)
        return record

    async def _await_loss(self, held: _Held, box: ServedSandbox) -> None:
        reason = await box.lost()
        async with held.lock:
            if held.record.state in (SandboxState.RUNNING, SandboxState.PAUSED):
                await self._move(held, SandboxState.FAILED, reason)

    async def _destroy(self, held: _Held, reason: str) -> None:
        async with held.lock:
            await self._destroy_locked(held, reason)

    async def _destroy_locked(self, held: _Held, reason: str) -> None:
        record = held.record
        if record.state is SandboxState.DELETED:
            return
        held.doomed = held.doomed or reason
        if held.error is not None:
            record = replace(record, idempotency_key="")
        if record.state is not SandboxState.DELETING:
            record = transition(record, SandboxState.DELETING, at=self._now(), reason=reason)
            try:
                await self._save(held, record)
            except RockError as error:
                # The box must go all the same; both changes are stored together below.
                log.error("a sandbox is being deleted unrecorded sandbox_id=%s: %s", record.id, error)
                held.record = record
        try:
            if held.box is not None:
                with plugin_call(f"closing sandbox {record.id}"):
                    await held.box.close()
                held.box = None
            await self._move(held, SandboxState.DELETED, reason)
        except RockError as error:
            self._deadlines.set(record.id, asyncio.get_running_loop().time() + _RETRY_S)
            raise InfraError(f"sandbox {record.id!r} could not be deleted: {error.message}") from error
        self._held.pop(record.id, None)

    async def _renew(self, sandbox_id: str, lease_s: float) -> SandboxRecord:
        held = await self._find_held(sandbox_id)
        async with held.lock:
            held.last_used_at = self._now()
            await self._save(held, renewed(held.record, lease_s=lease_s, at=self._now()))
            return held.record

    async def _halt(self, sandbox_id: str, to: SandboxState, reason: str) -> SandboxRecord:
        """Pause or resume; the box first, so that a stored PAUSED means that it stands still."""
        held = await self._find_held(sandbox_id)
        async with held.lock:
            if held.record.state is to:
                return held.record
            record, box = transition(held.record, to, at=self._now(), reason=reason), held.box
            if box is None:
                raise FailedPrecondition(
                    f"sandbox {sandbox_id!r} is {held.record.state}; wait until it is RUNNING"
                )
            act, undo = (box.pause, box.resume) if to is SandboxState.PAUSED else (box.resume, box.pause)
            with plugin_call(f"{act.__name__} of sandbox {sandbox_id}"):
                await act()
            held.last_used_at = self._now()
            try:
                await self._save(held, kept_busy(record, last_used_at=held.last_used_at))
            except RockError:
                with suppress(RockError):  # the store's error is the one to report
                    await undo()
                raise
            return held.record

    def _visible(self, sandbox_id: str) -> _Held | None:
        held = self._held.get(sandbox_id)
        return held if held is not None and held.record.tenant == self._tenant() else None

    async def _find_held(self, sandbox_id: str) -> _Held:
        held = self._visible(sandbox_id)
        if held is None:
            record = await self.get(sandbox_id)
            raise FailedPrecondition(f"sandbox {sandbox_id!r} is {record.state} ({record.reason})")
        return held

    # -- deadlines and restarts

    def _due(self, sandbox_id: str) -> None:
        held = self._held.get(sandbox_id)
        if held is not None:
            self._spawn(self._logged(self._expire(held)), self._tasks)

    async def _expire(self, held: _Held) -> None:
        async with held.lock:  # a Renew that was first has moved the deadline
            deadline, now = next_deadline(held.record), self._now()
            if held.doomed:
                await self._destroy_locked(held, held.doomed)
                return
            if deadline.at > now:
                self._deadlines.set(held.record.id, deadline.at - self._started_at)
                return
            if deadline.kind is DeadlineKind.IDLE:
                if held.users or held.record.state is SandboxState.PAUSED:
                    held.last_used_at = now
                busy = kept_busy(held.record, last_used_at=held.last_used_at)
                if busy.idle_expires_at is not None and busy.idle_expires_at > now:
                    await self._save(held, busy)
                    return
            await self._destroy_locked(held, deadline.kind)

    async def _reconcile(self) -> None:
        """End the records of boxes that are gone. No backend can take its boxes up again yet, so all are gone."""
        left = await self._store.find(Query(states=LIVE))
        for record in left:
            if record.state in (SandboxState.PENDING, SandboxState.STARTING):
                record = replace(
                    record, idempotency_key=""
                )  # never answered: its caller's retry starts afresh
            await self._store.save(self._ended(record, "server restarted"))
        if left:
            log.warning("sandboxes were lost with the previous server count=%d", len(left))
