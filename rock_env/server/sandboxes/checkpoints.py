"""The checkpoint tree: file systems of sandboxes frozen, restored and forked, and kept as long as they are needed.

Every call is made once under its key, also across a restart. A record always names a layer before something builds upon
it, so that a killed server frees nothing in use; what it left half made, the next one removes
(`server/sandboxes/layers`).
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from rock_env.backends.base import snapshot_site_of, that_takes_over
from rock_env.errors import (
    FailedPrecondition,
    InfraError,
    InvalidArgument,
    NotFound,
    ResourceExhausted,
    RockError,
    Unavailable,
)
from rock_env.guest.steering import Steering
from rock_env.lifecycle import SandboxRecord, SandboxState, noted, transition
from rock_env.server.capacity.admission import Grant
from rock_env.server.capacity.quotas import Ask
from rock_env.server.own_tasks import logged
from rock_env.server.sandboxes.box_call import COPY_S, box_call
from rock_env.server.sandboxes.core import SandboxCore, SandboxWish, new_sandbox_id
from rock_env.server.sandboxes.layers import KEPT, new_snapshot_id
from rock_env.server.sandboxes.ledger import HeldSandbox
from rock_env.server.sandboxes.lives import WORKING
from rock_env.server.sandboxes.ownership import elsewhere
from rock_env.snapshots import SnapshotRecord, SnapshotState, Uses
from rock_env.spec import SandboxSpec
from rock_env.store.base import Overtaken, SnapshotQuery

__all__ = ["MAX_FORK", "CheckpointTree", "TreeWish"]

MAX_FORK = 1024
_FULL_RETRY_S = 60.0
_WEIGHED_S = 60.0
"""For so long what a tenant's snapshots hold is known from the last look and what was made here since."""


@dataclass(frozen=True, slots=True)
class TreeWish:
    """What a Snapshot or a Fork asks for beyond the sandbox."""

    key: str = ""
    digest: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    lease_s: float | None = None
    idle_timeout_s: float | None = None
    wait_s: float | None = None
    """How long a Fork waits for places on the node; None: as long as the admission does by itself."""
    ephemeral: bool = False
    """Only something in this server's memory will refer to the snapshot."""


class CheckpointTree:
    """The snapshots of one server's sandboxes; each tenant sees its own."""

    def __init__(self, core: SandboxCore) -> None:
        self._core = core
        self._ledger = core.ledger
        self._store = core.ledger.store
        self._making: dict[tuple[str, str], asyncio.Task[SnapshotRecord]] = {}
        self._weights: dict[str, tuple[float, int]] = {}
        """By tenant: when its snapshots were weighed, and their bytes."""

    async def snapshot(self, sandbox_id: str, wish: TreeWish) -> SnapshotRecord:
        """Freeze a sandbox's file system; its processes stand still meanwhile and go on.

        Raise `FailedPrecondition` unless it runs or is paused, or for a key that was used for something else.
        """
        wish = replace(wish, key=f"snapshot/{wish.key}" if wish.key else "")
        return await self._once(wish, lambda: self._snapshot(sandbox_id, wish))

    async def fork(self, sandbox_id: str, count: int, wish: TreeWish) -> list[SandboxRecord]:
        """Make `count` sandboxes that start from this one's file system, at once and all or none.

        Repeated under its key it returns the same sandboxes, in whatever states they are by then. Raise as `snapshot`
        and `SandboxCore.create` do; then nothing was made.
        """
        if not 1 <= count <= MAX_FORK:
            raise InvalidArgument(f"fork count out of range: got {count}, expected 1 to {MAX_FORK}")
        wish = replace(wish, key=f"fork/{wish.key}" if wish.key else "")
        made = await self._once(wish, lambda: self._fork(sandbox_id, count, wish))
        return [await self._core.get(each) for each in made.forked]

    async def restore(self, sandbox_id: str, snapshot_id: str) -> SandboxRecord:
        """Give a sandbox the file system of a snapshot; its processes are killed, and it runs, also if it was paused."""
        return await self._core.tasks.run(self._restore(sandbox_id, snapshot_id))

    async def get(self, snapshot_id: str) -> SnapshotRecord:
        """Return a snapshot. Raise `NotFound` for an id that is unknown, another tenant's or deleted long ago."""
        record = await self._store.get_snapshot(snapshot_id)
        if record is None or record.tenant != self._ledger.tenant():
            raise NotFound(f"no snapshot {snapshot_id!r} on this server; ListSnapshots shows those there are")
        return record

    async def ready(self, snapshot_id: str) -> SnapshotRecord:
        """Return a snapshot that a sandbox may start from. Raise `NotFound` for one that was deleted, too."""
        record = await self.get(snapshot_id)
        if record.state is not SnapshotState.READY:
            raise NotFound(f"snapshot {snapshot_id!r} is {record.state}; ListSnapshots shows those there are")
        return record

    async def find(self, query: SnapshotQuery) -> Sequence[SnapshotRecord]:
        """Return the tenant's matching snapshots by ascending id."""
        return await self._store.find_snapshots(replace(query, tenant=self._ledger.tenant()))

    async def uses(self, records: Sequence[SnapshotRecord]) -> Mapping[str, Uses]:
        """Count what builds upon each of these snapshots."""
        return await self._store.uses([record.id for record in records])

    async def delete(self, snapshot_id: str) -> SnapshotRecord:
        """Delete a snapshot by name; its layer goes when nothing builds upon it any more. Safe to call twice."""
        return await self._core.tasks.run(self._delete(await self.get(snapshot_id)))

    def spec_for(self, snapshot: SnapshotRecord, asked: SandboxSpec | None) -> SandboxSpec:
        """Return the spec of a sandbox from a snapshot. Raise `InvalidArgument` for one of another image."""
        if asked is None:
            return snapshot.spec
        if asked.image not in ("", snapshot.spec.image):
            raise InvalidArgument(
                f"snapshot {snapshot.id!r} is of the image {snapshot.spec.image!r}, got the image {asked.image!r}; "
                "leave the image out"
            )
        return replace(asked, image=snapshot.spec.image)

    async def take_over(self, sandbox_id: str, snapshot_id: str, steering: Steering) -> list[str]:
        """Give a clean sandbox the files of a snapshot but those that could steer a grade; return what was left out.

        Raise what `TakesOver.take_over` raises.
        """
        held = await self._ledger.find_held(sandbox_id)
        async with held.lock:
            backend = that_takes_over(self._core.backends.named(held.record.backend))
            async with box_call(f"taking files over into sandbox {sandbox_id}", within_s=COPY_S):
                return await backend.take_over(held.record.box_id, snapshot=snapshot_id, steering=steering)

    # -- how they are done

    async def _once(
        self, wish: TreeWish, act: Callable[[], Coroutine[Any, Any, SnapshotRecord]]
    ) -> SnapshotRecord:
        """Return what this key made, wait for what it is making, or make it, in a task of the server's own."""
        if not wish.key:
            return await self._core.tasks.run(act())
        name = (self._ledger.tenant(), wish.key)
        task = self._making.get(name)
        if task is None:
            task = self._making[name] = self._core.tasks.spawn(self._known_or_made(wish, act))
            task.add_done_callback(lambda _: self._making.pop(name, None))
        made = await self._core.tasks.outcome(task)
        if made.request_digest != wish.digest:
            raise FailedPrecondition(
                f"idempotency key {wish.key.partition('/')[2]!r} was used for another request; take a new one"
            )
        return made

    async def _known_or_made(
        self, wish: TreeWish, act: Callable[[], Coroutine[Any, Any, SnapshotRecord]]
    ) -> SnapshotRecord:
        query = SnapshotQuery(tenant=self._ledger.tenant(), idempotency_key=wish.key)
        for known in await self._store.find_snapshots(query):
            if known.state is not SnapshotState.MAKING:
                return known
            # Nobody makes it here, or this would wait for that: it is another server's, or was left half made.
            living = await self._ledger.ownership.makers()
            if known.owner in living or not await self._core.layers.give_up(known):
                raise Unavailable(
                    f"the snapshot of idempotency key {wish.key.partition('/')[2]!r} is being made by another server. "
                    "Ask again, with the same idempotency key.",
                    retry_after_s=0.2,
                )
        return await act()

    async def _snapshot(self, sandbox_id: str, wish: TreeWish) -> SnapshotRecord:
        held = await self._ledger.find_held(sandbox_id)
        async with held.lock:
            frozen = await self._freeze(held, wish, forked=())
            return await self._finish(held, replace(frozen, state=SnapshotState.READY))

    async def _finish(self, held: HeldSandbox, made: SnapshotRecord) -> SnapshotRecord:
        """Store that a snapshot is made. Raise `Unavailable` where its sandbox, and so this, was taken over meanwhile."""
        try:
            return await self._store.save_snapshot(made)
        except Overtaken as error:
            raise elsewhere(held.record) from error
        except RockError:
            await logged(self._core.layers.give_up(made))
            raise

    async def _freeze(self, held: HeldSandbox, wish: TreeWish, *, forked: tuple[str, ...]) -> SnapshotRecord:
        """Make a layer of the box, and a record that is MAKING still. Nothing is left of either if that failed."""
        source = held.record
        if held.released:
            raise elsewhere(source)
        if source.state not in WORKING or held.box is None:
            raise FailedPrecondition(
                f"sandbox {source.id!r} is {source.state} ({source.reason}); only one that runs can be frozen"
            )
        parent = source.snapshot_id
        await self._check_room(source.tenant)
        ownership, site = self._ledger.ownership, snapshot_site_of(self._core.backends.named(source.backend))
        shared = site in ownership.sites
        record = await self._store.add_snapshot(
            SnapshotRecord(
                id=new_snapshot_id(ownership.maker if shared else ""),
                backend=source.backend,
                spec=source.spec,
                sandbox_id=source.id,
                created_at=self._ledger.now(),
                parent=parent,
                tenant=source.tenant,
                labels=wish.labels,
                ephemeral=wish.ephemeral,
                forked=forked,
                idempotency_key=wish.key,
                request_digest=wish.digest,
                folder=site if shared else ownership.folder,
                owner=ownership.maker,
            )
        )
        try:
            await self._ledger.save(held, replace(source, snapshot_id=record.id))
            async with box_call(f"freezing sandbox {source.id}", within_s=COPY_S):
                size = await self._core.backends.named(source.backend).snapshot(
                    source.box_id, snapshot_id=record.id
                )
                if source.state is SandboxState.PAUSED:
                    await held.box.pause()  # freezing it may have let it go on
        except RockError:
            await logged(self._unmake(held, record))
            raise
        if source.tenant in self._weights:
            weighed_at, held_bytes = self._weights[source.tenant]
            self._weights[source.tenant] = (weighed_at, held_bytes + size)
        return replace(record, bytes=size)

    async def _check_room(self, tenant: str) -> None:
        """Raise `ResourceExhausted` where the tenant has as many snapshots, or as large ones, as one may have."""
        count, most = await self._store.count_snapshots(tenant), self._core.most_snapshots
        if count >= most:
            raise ResourceExhausted(
                f"you have {count} snapshots, those that sandboxes build upon included; one tenant has at most {most} here. "
                "Delete some, or have the limit raised (--most-snapshots).",
                retry_after_s=_FULL_RETRY_S,
            )
        most = self._core.most_snapshot_bytes
        weighed_at, held_bytes = self._weights.get(tenant, (-math.inf, 0))
        if (
            time.monotonic() - weighed_at > _WEIGHED_S or held_bytes >= most
        ):  # those that were deleted are off
            query = SnapshotQuery(tenant=tenant, states=KEPT)
            held_bytes = sum([record.bytes for record in await self._store.find_snapshots(query)])
            self._weights[tenant] = (time.monotonic(), held_bytes)
        if held_bytes >= most:
            raise ResourceExhausted(
                f"your snapshots hold {held_bytes} bytes, those that sandboxes build upon included; one tenant's may hold "
                f"{most} here. Delete some, or have the limit raised (--most-snapshot-bytes).",
                retry_after_s=_FULL_RETRY_S,
            )

    async def _unmake(self, held: HeldSandbox, record: SnapshotRecord) -> None:
        if held.record.snapshot_id == record.id:
            await self._ledger.save(held, replace(held.record, snapshot_id=record.parent))
        await self._store.save_snapshot(replace(record, state=SnapshotState.COLLECTED, idempotency_key=""))

    async def _fork(self, sandbox_id: str, count: int, wish: TreeWish) -> SnapshotRecord:
        held = await self._ledger.find_held(sandbox_id)
        forked = tuple(new_sandbox_id() for _ in range(count))
        asks = [Ask.of(held.record.spec.resources)] * count
        places = (await self._core.admission.admit(held.record.tenant, asks, timeout_s=wish.wait_s)).split()
        try:
            return await self._fork_placed(held, wish, dict(zip(forked, places, strict=True)))
        except BaseException:
            for place in places:
                place.release()
            raise

    async def _fork_placed(
        self, held: HeldSandbox, wish: TreeWish, forked: Mapping[str, Grant]
    ) -> SnapshotRecord:
        async with held.lock:
            frozen = await self._freeze(held, wish, forked=tuple(forked))
        # Nobody asked for it by name: it is kept as long as its sandboxes need it.
        kept = replace(frozen, state=SnapshotState.DELETED)
        made = await asyncio.gather(
            *(
                self._core.create(replace(self._forked(each, held.record, frozen, wish), place=place))
                for each, place in forked.items()
            ),
            return_exceptions=True,
        )
        errors = [outcome for outcome in made if isinstance(outcome, BaseException)]
        if not errors:
            try:
                return await self._finish(held, kept)
            except RockError as error:
                errors.append(error)
        for outcome in made:
            if isinstance(outcome, SandboxRecord):
                await logged(self._end_fork(outcome.id))
        await logged(self._core.layers.give_up(frozen))
        raise errors[0]

    def _forked(
        self, sandbox_id: str, source: SandboxRecord, snapshot: SnapshotRecord, wish: TreeWish
    ) -> SandboxWish:
        return SandboxWish(
            source.spec,
            environment=source.environment,
            labels=wish.labels or source.labels,
            lease_s=wish.lease_s,
            idle_timeout_s=wish.idle_timeout_s,
            snapshot_id=snapshot.id,
            backend=snapshot.backend,
            ephemeral=not source.lasting,
            sandbox_id=sandbox_id,
        )

    async def _end_fork(self, sandbox_id: str) -> None:
        held = self._ledger.held.get(sandbox_id)
        if held is not None:
            await self._core.lives.destroy(held, "another sandbox of its fork could not be made")

    async def _restore(self, sandbox_id: str, snapshot_id: str) -> SandboxRecord:
        snapshot = await self.ready(snapshot_id)
        held = await self._ledger.find_held(sandbox_id)
        async with held.lock:
            before = held.record
            if held.released:
                raise elsewhere(before)
            if before.state not in WORKING or held.box is None:
                raise FailedPrecondition(f"sandbox {sandbox_id!r} is {before.state} ({before.reason})")
            if snapshot.backend != before.backend:
                raise InvalidArgument(
                    f"snapshot {snapshot_id!r} is of the {snapshot.backend} backend, and the sandbox of the "
                    f"{before.backend} backend; create one from the snapshot"
                )
            leaving = before.snapshot_id
            wanted = replace(before, snapshot_id=snapshot_id, leaving_snapshot_id=leaving, restoring=True)
            await self._ledger.save(held, wanted)
            await self._replace_box(held, before, snapshot_id)
            await logged(self._core.layers.collect(leaving))
            return held.record

    async def _replace_box(self, held: HeldSandbox, before: SandboxRecord, snapshot_id: str) -> None:
        backend, old = self._core.backends.named(before.backend), held.box
        held.box = None  # its loss is meant
        try:
            async with box_call(f"restoring sandbox {before.id}", within_s=COPY_S):
                held.box = await backend.restore(before.box_id, snapshot=snapshot_id)
                # A box out of a warm pool was made with the pool's lease, and a backend may have made it so again.
                await held.box.lease(self._core.lives.node_end_s(before))
        except InfraError as error:
            # What is left of the box builds upon either snapshot: both are kept until it is deleted.
            await self._ledger.move(held, SandboxState.FAILED, error.message)
            raise
        except RockError:  # nothing was changed
            held.box = old
            await self._ledger.save(held, replace(before, revision=held.record.revision))
            raise
        self._core.lives.listen(held, held.box)
        record = replace(held.record, leaving_snapshot_id="", restoring=False, box_id=held.box.id)
        now, reason = self._ledger.now(), f"restored to snapshot {snapshot_id}"
        if record.state is SandboxState.RUNNING:
            record = noted(record, at=now, reason=reason)
        else:
            record = transition(record, SandboxState.RUNNING, at=now, reason=reason)
        held.last_used_at = now
        await self._ledger.save(held, record)

    async def _delete(self, record: SnapshotRecord) -> SnapshotRecord:
        if record.state in (SnapshotState.MAKING, SnapshotState.READY):
            if record.state is SnapshotState.MAKING:
                raise FailedPrecondition(f"snapshot {record.id!r} is being made; delete it afterwards")
            with suppress(
                Overtaken
            ):  # deleted by somebody else meanwhile: nothing else can happen to one that is made
                await self._store.save_snapshot(replace(record, state=SnapshotState.DELETED))
            await self._core.layers.collect(record.id)
        return await self.get(record.id)
