"""The layers of snapshots on the node, kept as long as something builds upon them and not longer.

Called when a sandbox or a snapshot was deleted, and by the reconciliation at the start. What builds upon what, the
store counts; a layer that could not be removed is removed by the next start.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Sequence
from dataclasses import replace
from graphlib import TopologicalSorter

from rock_env.backends.router import BackendRouter
from rock_env.errors import RockError, Unavailable, plugin_call
from rock_env.lifecycle import SITE
from rock_env.server.own_tasks import logged
from rock_env.server.sandboxes.ownership import Ownership, is_here
from rock_env.snapshots import SnapshotRecord, SnapshotState
from rock_env.store.base import Overtaken, SandboxStore, SnapshotQuery

__all__ = ["KEPT", "LayerReferences", "new_snapshot_id"]

log = logging.getLogger(__name__)

KEPT = frozenset(SnapshotState) - {SnapshotState.COLLECTED}
"""States of snapshots that have a layer."""


def new_snapshot_id(maker: str) -> str:
    """Return an id that no other snapshot has; ids ascend with time, and the store forgets the lowest first.

    `maker` is that of the server where others have the same layers, else empty.
    """
    return f"sn-{time.time_ns() // 1_000_000:012x}{secrets.token_hex(4)}{f'-{maker}' if maker else ''}"


def _maker_of(snapshot: str) -> str:
    """Return the `maker` of the server that made the snapshot; empty where its id does not say."""
    return snapshot.removeprefix("sn-").partition("-")[2]


class LayerReferences:
    """The reference counting of one server's layers."""

    def __init__(self, store: SandboxStore, backends: BackendRouter, ownership: Ownership) -> None:
        self._store = store
        self._backends = backends
        self._ownership = ownership
        self._leaving: dict[str, set[asyncio.Future[None]]] = {}
        """By the id of a layer: the removals in progress of those that were built upon it."""

    async def collect(self, snapshot_id: str) -> None:
        """Remove the layer, and those below it, if nobody wants them and nothing needs them any more."""
        if not snapshot_id:
            return
        loop = asyncio.get_running_loop()
        leaving = [(record, loop.create_future()) for record in await self._store.collect(snapshot_id)]
        for record, gone in leaving:  # noted before anybody can collect what lies below
            self._leaving.setdefault(record.parent, set()).add(gone)
        try:
            for record, gone in leaving:
                if above := self._leaving.get(record.id):
                    await asyncio.wait(above)
                await self._remove(record.backend, record.id)
                self._left(record, gone)
        finally:
            for record, gone in leaving:
                self._left(record, gone)

    def _left(self, record: SnapshotRecord, gone: asyncio.Future[None]) -> None:
        if not gone.done():
            gone.set_result(None)
            self._leaving[record.parent].discard(gone)
            if not self._leaving[record.parent]:
                del self._leaving[record.parent]

    async def reconcile(self) -> None:
        """Finish what a killed server left: snapshots half made or half removed, and records of layers that are gone.

        Snapshots whose layer is in another state folder are another node's, and those that a server that lives is making,
        or made at a site, are theirs.
        """
        for record in await self._here(KEPT):
            if record.state is SnapshotState.MAKING:
                await self.give_up(record)
            elif record.ephemeral:
                await self._end(record)
        # The records first: a layer is there before its snapshot is READY.
        ready = [it for it in await self._here(KEPT) if it.state is SnapshotState.READY]
        there = await self.listed()
        for record in ready:
            if record.backend in there and record.id not in there[record.backend]:
                log.warning("a snapshot's layer is gone snapshot_id=%s backend=%s", record.id, record.backend)
                await self._end(record)
        for record in await self._here(frozenset({SnapshotState.DELETED})):
            await self.collect(record.id)

    async def making(self) -> Sequence[SnapshotRecord]:
        """Return the snapshots that were being made here when their server died, or are by this one."""
        return await self._here(frozenset({SnapshotState.MAKING}))

    async def _here(self, states: frozenset[SnapshotState]) -> Sequence[SnapshotRecord]:
        found = await self._store.find_snapshots(SnapshotQuery(states=states))
        return await self._ours([record for record in found if is_here(self._ownership, record.folder)])

    async def _ours(self, records: Sequence[SnapshotRecord]) -> Sequence[SnapshotRecord]:
        """Return those that no other server that lives is making, nor made where others have the same layers."""
        living = await self._ownership.makers()  # after the records: who made one of them is known by now
        making = [it for it in records if not (it.state is SnapshotState.MAKING and it.owner in living)]
        return [it for it in making if not (it.folder.startswith(SITE) and _maker_of(it.id) in living)]

    async def end_those_of_the_dead(self) -> None:
        """Give up what died with its server, at sites that this server reaches: half made, or known to that server alone."""
        for record in await self._here(KEPT):
            dead = record.folder.startswith(SITE) and _maker_of(record.id) != self._ownership.maker
            if dead and (record.state is not SnapshotState.READY or record.ephemeral):
                await logged(self.give_up(record))

    async def claim(self, record: SnapshotRecord) -> SnapshotRecord | None:
        """Take what a dead server was making from it, to end it; None if it was finished after all.

        That server may live in fact: from now on it can finish it no more.
        """
        if record.owner == self._ownership.maker:
            return record
        try:
            return await self._store.save_snapshot(
                replace(record, owner=self._ownership.maker, idempotency_key="")
            )
        except Overtaken:
            now = await self._store.get_snapshot(record.id)
        finished = now is not None and now.state is not SnapshotState.MAKING and now.forked == record.forked
        return None if finished else now or record

    async def give_up(self, record: SnapshotRecord) -> bool:
        """End a snapshot that was never finished; its key is free. Return whether it was still as it was read."""
        ended = await self._end(replace(record, idempotency_key="", forked=()))
        if ended:
            await self.collect(record.id)
        return ended

    async def _end(self, record: SnapshotRecord) -> bool:
        """Let nobody want the snapshot by name any more; False where somebody else changed it since it was read."""
        try:
            await self._store.save_snapshot(replace(record, state=SnapshotState.DELETED))
        except Overtaken as error:
            log.info("a snapshot is left to who was faster: %s", error)
            return False
        return True

    async def sweep(self) -> list[str]:
        """Remove the layers that no record needs, each before what it builds upon; return what was not, and why."""
        left = []
        for name, layers in (await self.strays()).items():
            for snapshot_id in layers:
                error = await self._remove(name, snapshot_id)
                left += [] if error is None else [f"layer {snapshot_id}: {error.message}"]
        return left

    async def strays(self) -> dict[str, list[str]]:
        """Return the layers on the node that no record needs, by backend, children first; of backends that answer."""
        there = await self.listed()
        # The records afterwards: one that is made meanwhile has its record before its layer.
        found = {
            name: layers - {record.id for record in await self.kept(name)} for name, layers in there.items()
        }
        return {name: await self._children_first(layers) for name, layers in found.items()}

    async def _children_first(self, layers: set[str]) -> list[str]:
        """Put layers that are gone from the tree in the order of removal. Those without any record: youngest id first."""
        if not layers:
            return []
        collected = await self._store.find_snapshots(
            SnapshotQuery(states=frozenset({SnapshotState.COLLECTED}))
        )
        parents = {record.id: record.parent for record in collected}
        order: TopologicalSorter[str] = TopologicalSorter()
        for each in sorted(layers, reverse=True):
            order.add(each)
            if (parent := parents.get(each)) in layers:
                order.add(parent, each)
        return list(order.static_order())

    async def listed(self) -> dict[str, set[str]]:
        """Return the ids of the layers on the node, by backend; of those backends that answer."""
        listed: dict[str, set[str]] = {}
        for backend in self._backends:
            try:
                with plugin_call(f"listing the layers of the {backend.name} backend"):
                    listed[backend.name] = await backend.snapshots()
            except RockError as error:
                level = logging.INFO if isinstance(error, Unavailable) else logging.WARNING
                log.log(level, "layers could not be listed backend=%s: %s", backend.name, error)
        return listed

    async def kept(self, backend: str) -> Sequence[SnapshotRecord]:
        """Return the snapshots of a backend whose layers something needs, on this node or another."""
        found = await self._store.find_snapshots(SnapshotQuery(states=KEPT))
        return [record for record in found if record.backend == backend]

    async def kept_here(self, backend: str) -> Sequence[SnapshotRecord]:
        """Return those whose layers must be on this node."""
        return [record for record in await self.kept(backend) if is_here(self._ownership, record.folder)]

    async def _remove(self, backend: str, snapshot_id: str) -> RockError | None:
        """Remove a layer; return why that failed, if it did."""
        try:
            with plugin_call(f"removing layer {snapshot_id}"):
                await self._backends.named(backend).delete_snapshot(snapshot_id)
        except RockError as error:
            log.warning("a layer is left to the next start snapshot_id=%s: %s", snapshot_id, error)
            return error
        return None
