"""What a starting server finds, compared both ways: records against boxes on the node, boxes against records.

Used by the sandbox core at its start, and by the AdminService for its census. Nothing here waits for an engine that is
not there: what that says nothing about is left as it is.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace

from rock_env.backends.base import Backend, site_of
from rock_env.backends.pool import PooledBackend, stock_of
from rock_env.backends.router import BackendRouter
from rock_env.errors import InfraError, RockError, Unavailable, plugin_call
from rock_env.inventory import BackendCensus, Limits
from rock_env.lifecycle import SandboxRecord, SandboxState
from rock_env.server.capacity.quotas import Ask
from rock_env.server.own_tasks import logged
from rock_env.server.sandboxes.layers import LayerReferences
from rock_env.server.sandboxes.ledger import LIVE, HeldSandbox, Ledger
from rock_env.server.sandboxes.lives import WORKING, Lives
from rock_env.server.sandboxes.ownership import is_here
from rock_env.snapshots import SnapshotRecord, SnapshotState
from rock_env.store.base import Query

__all__ = ["Reconciler"]

log = logging.getLogger(__name__)

RESTARTED = "server restarted"
_AT_ONCE = 32
"""How many boxes are taken up at a time; each costs a connection and two writes of its record."""


class Reconciler:
    """Compares one server's records with its node, and sets right what differs."""

    def __init__(
        self, ledger: Ledger, backends: BackendRouter, layers: LayerReferences, lives: Lives
    ) -> None:
        self._ledger = ledger
        self._backends = backends
        self._layers = layers
        self._lives = lives

    async def on_start(self, *, durable: bool) -> None:
        """Take up what lives on, end the records of what is gone, and destroy what no record knows.

        A server that is not `durable` and finds no records has a node of its own, with nothing on it.
        """
        left = await self._ledger.store.find(Query(states=LIVE))
        making = await self._layers.making()
        limit = asyncio.Semaphore(_AT_ONCE)

        async def settle(record: SandboxRecord) -> None:
            async with limit:
                await logged(self._take(record, making))

        async with asyncio.TaskGroup() as group:
            for record in left:
                group.create_task(settle(record))
        taken_up = sum(held.box is not None for held in self._ledger.held.values())
        if left:
            log.warning("sandboxes of the previous server count=%d taken_up=%d", len(left), taken_up)
        elif not durable:
            return
        if not await self._ledger.ownership.sole():
            await self._layers.sweep()  # what else is half done here may be the work of another server
            return
        await self._layers.reconcile()
        await self._swept(await self.census())

    async def take_over(self, record: SandboxRecord) -> None:
        """Take up a sandbox of another server that died or let go of it, or record its end."""
        # Asked before the claim: it is given up only after all of a Fork's sandboxes have been claimed.
        if await self._take(record, await self._layers.making()):
            log.warning("took over a sandbox sandbox_id=%s of=%s", record.id, record.owner)

    async def _take(self, record: SandboxRecord, making: Sequence[SnapshotRecord]) -> bool:
        """Settle a sandbox that is nobody's and what was being made of it; False where it is somebody's."""
        if record.id in self._ledger.held:
            return False
        mine = await self._ledger.ownership.claim(record)
        if mine is None:
            return False
        # The sandboxes of a Fork that was never answered: all or none of them, so none.
        unanswered = [await self._layers.claim(it) for it in making if mine.id in it.forked]
        await self._settle(mine, unanswered=any(unanswered))
        for snapshot in making:
            if snapshot.sandbox_id == mine.id and (claimed := await self._layers.claim(snapshot)):
                await self._give_up(claimed)
        return True

    async def _give_up(self, snapshot: SnapshotRecord) -> None:
        """End a Snapshot or Fork that died with its server, and what it had made."""
        for sandbox_id in snapshot.forked:
            record = await self._ledger.store.get(sandbox_id)
            if record is not None and record.state in LIVE:
                await self.take_over(record)
        await logged(self._unmake(snapshot))
        await self._layers.give_up(snapshot)

    async def _settle(self, record: SandboxRecord, *, unanswered: bool) -> None:
        held = self._ledger.hold(record)
        held.started.set()
        held.place = self._lives.admission.adopt(record.tenant, [Ask.of(record.spec.resources)])
        if self._ledger.ownership.places is not None:  # one of a release that knew of no places has none yet
            await self._ledger.ownership.places.take(record, Limits())
        self._ledger.watch_deadline(record)
        async with held.lock:
            if record.state is SandboxState.DELETING:
                await self._lives.destroy_locked(held, record.reason)
            elif record.state in WORKING and record.lasting and not unanswered:
                await self._lives.take_up(held)
            elif record.state is not SandboxState.FAILED or not record.lasting or unanswered:
                await self._forget(held)

    async def _forget(self, held: HeldSandbox) -> None:
        """End the record of a box that ended with its server, or was never finished."""
        record = held.record
        if record.state in (SandboxState.PENDING, SandboxState.STARTING):
            held.record = replace(
                record, idempotency_key=""
            )  # never answered: its caller's retry starts afresh
        held.doomed = RESTARTED  # should the next lines fail
        self._ledger.look_again(held)
        await self._lives.end_gone(held, self._backends.named(record.backend), RESTARTED)

    async def _unmake(self, snapshot: SnapshotRecord) -> None:
        """Let a sandbox build upon what it did before, if the layer it announced never came to be."""
        if snapshot.id in (await self._layers.listed()).get(snapshot.backend, {snapshot.id}):
            return
        held = self._ledger.held.get(snapshot.sandbox_id)
        if held is not None:
            async with held.lock:
                if held.record.snapshot_id == snapshot.id:
                    await self._ledger.save(held, replace(held.record, snapshot_id=snapshot.parent))

    async def sweep_sites(self) -> None:
        """Destroy, at the sites this server reaches, what no record and no server that lives knows.

        That is stock of the dead, and snapshots that they were making or alone knew of.
        """
        await self._layers.end_those_of_the_dead()
        at_sites = {backend.name for backend in self._backends if site_of(backend)}
        await self._destroy_orphans([it for it in await self.census() if it.backend in at_sites])

    async def _others(self) -> set[str]:
        """Return whose stock is not left over, besides this server's own; "" stands for servers of an earlier release."""
        others = set(await self._ledger.ownership.makers())
        return others if await self._ledger.ownership.sole() else others | {""}

    async def sweep(self, counted: Sequence[BackendCensus]) -> None:
        """Destroy the boxes and layers of a census that nothing needs. Raise `InfraError` with what is left, and why."""
        left = await self._swept(counted)
        if left:
            raise InfraError(
                f"{len(left)} of what nothing needs could not be removed: {'; '.join(left)}. The rest is gone; mend "
                "the cause and ask again."
            )

    async def _swept(self, counted: Sequence[BackendCensus]) -> list[str]:
        return await self._destroy_orphans(counted) + await self._layers.sweep()

    async def _destroy_orphans(self, counted: Sequence[BackendCensus]) -> list[str]:
        left = []
        for census in counted:
            for box_id, what in census.orphans.items():
                log.warning("destroying an orphan box_id=%s what=%s", box_id, what)
                try:
                    await _destroy(self._backends.named(census.backend), box_id, what=what)
                except RockError as error:
                    log.error("an orphan could not be destroyed box_id=%s: %s", box_id, error)
                    left.append(f"box {box_id}: {error.message}")
        return left

    async def census(self) -> list[BackendCensus]:
        """Compare every backend's node with the records. What changes meanwhile is never called an orphan or ghost."""
        others = await self._others()
        before = await self._ledger.store.find(Query(states=LIVE))
        there: dict[str, Mapping[str, str]] = {}
        errors: dict[str, str] = {}
        layers = await self._layers.listed()
        for backend in self._backends:
            try:
                with plugin_call(f"counting the boxes of the {backend.name} backend"):
                    there[backend.name] = await backend.census()
            except RockError as error:
                level = logging.INFO if isinstance(error, Unavailable) else logging.WARNING
                log.log(level, "boxes could not be counted backend=%s: %s", backend.name, error)
                errors[backend.name] = error.message
        after = {record.id: record for record in await self._ledger.store.find(Query(states=LIVE))}
        counted, others = [], others | await self._others()  # who came or went meanwhile counts as living
        for backend in self._backends:
            if backend.name in errors:
                counted.append(BackendCensus(backend.name, error=errors[backend.name]))
                continue
            mine = [
                record
                for record in before
                if record.backend == backend.name and is_here(self._ledger.ownership, record.folder)
            ]
            # A box claimed a moment ago may have its record already: then it is that sandbox's and no stock.
            recorded = {record.box_id for record in (*before, *after.values())}
            stock = backend.accounted - recorded if isinstance(backend, PooledBackend) else frozenset()
            # Other servers of this node or site keep stock, too, which this one knows by its ids alone.
            stock |= {it for it in there[backend.name].keys() - recorded if stock_of(it) in others}
            census = _compared(
                backend.name,
                {box_id: what for box_id, what in there[backend.name].items() if box_id not in stock},
                mine,
                after,
            )
            census = replace(
                census, boxes=len(there[backend.name]), stock=len(stock & there[backend.name].keys())
            )
            counted.append(await self._with_layers(census, layers.get(backend.name)))
        return counted

    async def _with_layers(self, census: BackendCensus, layers: set[str] | None) -> BackendCensus:
        if layers is None:
            return replace(census, error="its layers could not be listed; the server's log says why")
        here = await self._layers.kept_here(census.backend)
        missing = {record.id for record in here if record.state is SnapshotState.READY} - layers
        stray = layers - {record.id for record in await self._layers.kept(census.backend)}
        return replace(
            census,
            layers=len(layers),
            stray_layers=tuple(sorted(stray)),
            missing_layers=tuple(sorted(missing)),
        )


def _compared(
    backend: str,
    there: Mapping[str, str],
    before: Sequence[SandboxRecord],
    after: Mapping[str, SandboxRecord],
) -> BackendCensus:
    """Compare what was there with what was recorded just before and just after."""
    known = {record.box_id for record in before}
    known |= {record.box_id for record in after.values() if record.backend == backend}
    ghosts = {
        record.id: record.box_id
        for record in before
        if record.state in WORKING
        and record.box_id not in there
        and (now := after.get(record.id)) is not None
        and now.state in WORKING
    }
    orphans = {box_id: what for box_id, what in there.items() if box_id not in known}
    return BackendCensus(backend, len(there), len(before), orphans=orphans, ghosts=ghosts)


async def _destroy(backend: Backend, box_id: str, *, what: str) -> None:
    with plugin_call(f"destroying the orphan {box_id} ({what})"):
        await backend.destroy(box_id)
