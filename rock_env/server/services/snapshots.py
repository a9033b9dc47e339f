"""The SandboxService's calls on the checkpoint tree: snapshot, restore, fork, and what there is of snapshots.

Registered by `server/services/sandboxes`. It keeps no state and decides nothing: the tree does.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace

from rock_env.proto.v1 import sandbox_pb2 as pb
from rock_env.server.calls import Context, patience_s
from rock_env.server.sandboxes.checkpoints import CheckpointTree, TreeWish
from rock_env.snapshots import SnapshotRecord, SnapshotState
from rock_env.store.base import SnapshotQuery
from rock_env.wire.sandboxes import (
    asked_idle_s,
    asked_lease_s,
    info_message,
    page_token,
    snapshot_message,
    snapshot_state,
)

__all__ = ["SnapshotCalls"]

_PAGE = 1000


class SnapshotCalls:
    """The handlers, by the names of their calls."""

    def __init__(self, tree: CheckpointTree) -> None:
        self._tree = tree

    async def snapshot(self, request: pb.SnapshotSandboxRequest, _: Context) -> pb.SnapshotSandboxResponse:
        made = await self._tree.snapshot(request.id, _wish(request))
        return pb.SnapshotSandboxResponse(
            snapshot_id=made.id, parent_snapshot_id=made.parent, snapshot=(await self._messages([made]))[0]
        )

    async def restore(self, request: pb.RestoreSandboxRequest, _: Context) -> pb.SandboxInfo:
        return info_message(await self._tree.restore(request.id, request.snapshot_id))

    async def fork(self, request: pb.ForkSandboxRequest, context: Context) -> pb.ForkSandboxResponse:
        wish = _wish(request, patience_s(context))
        made = await self._tree.fork(request.id, request.count, wish)
        return pb.ForkSandboxResponse(sandboxes=map(info_message, made))

    async def get_snapshot(self, request: pb.GetSnapshotRequest, _: Context) -> pb.SnapshotInfo:
        return (await self._messages([await self._tree.get(request.id)]))[0]

    async def list_snapshots(self, request: pb.ListSnapshotsRequest, _: Context) -> pb.ListSnapshotsResponse:
        size = min(request.page_size or _PAGE, _PAGE)
        states = frozenset(map(snapshot_state, request.states)) or frozenset({SnapshotState.READY})
        query = SnapshotQuery(
            sandbox_id=request.sandbox_id,
            labels=dict(request.labels),
            states=states,
            after_id=page_token(request.page_token, "sn-"),
            limit=size + 1,
        )
        found = await self._tree.find(query)
        token = found[size - 1].id if len(found) > size else ""
        messages = await self._messages(found[:size])
        return pb.ListSnapshotsResponse(snapshots=messages, next_page_token=token)

    async def delete_snapshot(self, request: pb.DeleteSnapshotRequest, _: Context) -> pb.SnapshotInfo:
        return (await self._messages([await self._tree.delete(request.id)]))[0]

    async def _messages(self, records: Sequence[SnapshotRecord]) -> list[pb.SnapshotInfo]:
        uses = await self._tree.uses(records)
        return [snapshot_message(record, uses[record.id]) for record in records]


def _wish(
    request: pb.SnapshotSandboxRequest | pb.ForkSandboxRequest, wait_s: float | None = None
) -> TreeWish:
    # Deterministic bytes: a retry must compare equal whatever order its maps were filled in.
    digest = hashlib.sha256(request.SerializeToString(deterministic=True)).hexdigest()
    wish = TreeWish(key=request.idempotency_key, digest=digest, labels=dict(request.labels))
    if isinstance(request, pb.SnapshotSandboxRequest):
        return wish
    return replace(wish, lease_s=asked_lease_s(request), idle_timeout_s=asked_idle_s(request), wait_s=wait_s)
