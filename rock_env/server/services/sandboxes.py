"""The gRPC face of the SandboxService: lifecycle calls for the core; it registers all calls.

It keeps no state: the core has the sandboxes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from contextlib import aclosing

import grpc

from rock_env.proto.v1 import sandbox_pb2 as pb
from rock_env.server.calls import Act, Context, add_service, patience_s
from rock_env.server.sandboxes.checkpoints import CheckpointTree
from rock_env.server.sandboxes.core import LIVE, SandboxCore, SandboxWish
from rock_env.server.sandboxes.gangs import Gangs
from rock_env.server.sandboxes.ports import Ports
from rock_env.server.services.exec import ExecService
from rock_env.server.services.files import FileService
from rock_env.server.services.snapshots import SnapshotCalls
from rock_env.store.base import Query
from rock_env.wire.bulk import TAR
from rock_env.wire.sandboxes import (
    asked_idle_s,
    asked_lease_s,
    info_message,
    page_token,
    sandbox_spec,
    sandbox_state,
    seconds,
)

__all__ = ["SERVICE", "add_sandbox_service"]

SERVICE = pb.DESCRIPTOR.services_by_name["SandboxService"].full_name
_PAGE = 1000


class _SandboxService:
    def __init__(self, core: SandboxCore, tree: CheckpointTree) -> None:
        self._core = core
        self.ports = Ports(core)
        self._tree = tree
        self._gangs = Gangs(core)

    async def create(self, request: pb.CreateSandboxRequest, context: Context) -> pb.SandboxInfo:
        info = info_message(await self._core.create(await self._wish(request, patience_s(context))))
        await self._issue([request], [info])
        return info

    async def create_many(self, request: pb.CreateManyRequest, context: Context) -> pb.CreateManyResponse:
        wait_s = patience_s(context)
        wishes = [await self._wish(item, wait_s) for item in request.items]
        made = await self._gangs.create(wishes, key=request.idempotency_key, wait_s=wait_s)
        infos = [info_message(record) for record in made]
        await self._issue(request.items, infos)
        return pb.CreateManyResponse(sandboxes=infos)

    async def _issue(
        self, requests: Iterable[pb.CreateSandboxRequest], infos: Iterable[pb.SandboxInfo]
    ) -> None:
        """Put a token into the answer of each request that asked for one."""
        for request, info in zip(requests, infos, strict=True):
            if request.issue_token:
                info.token = await self.ports.issue(info.id)

    async def _wish(self, request: pb.CreateSandboxRequest, wait_s: float | None) -> SandboxWish:
        spec, backend = sandbox_spec(request.spec), ""
        if request.snapshot_id:
            snapshot = await self._tree.get(request.snapshot_id)
            spec = self._tree.spec_for(snapshot, spec if request.HasField("spec") else None)
            backend = snapshot.backend
        # Deterministic bytes: a retry must compare equal whatever order its maps were filled in.
        wanted = request.SerializeToString(deterministic=True)
        return SandboxWish(
            spec=spec,
            snapshot_id=request.snapshot_id,
            backend=backend,
            environment=request.environment,
            labels=dict(request.labels),
            lease_s=asked_lease_s(request),
            idle_timeout_s=asked_idle_s(request),
            key=request.idempotency_key,
            digest=hashlib.sha256(wanted).hexdigest(),
            wait_s=wait_s,
        )

    async def get(self, request: pb.GetSandboxRequest, _: Context) -> pb.SandboxInfo:
        return info_message(await self._core.get(request.id))

    async def list(self, request: pb.ListSandboxesRequest, _: Context) -> pb.ListSandboxesResponse:
        size = min(request.page_size or _PAGE, _PAGE)
        query = Query(
            states=frozenset(map(sandbox_state, request.states)) or LIVE,
            labels=dict(request.labels),
            environment=request.environment,
            after_id=page_token(request.page_token, "sb-"),
            limit=size + 1,
        )
        found = await self._core.find(query)
        token = found[size - 1].id if len(found) > size else ""
        return pb.ListSandboxesResponse(sandboxes=map(info_message, found[:size]), next_page_token=token)

    async def watch(self, request: pb.WatchSandboxesRequest, context: Context) -> None:
        changes = self._core.watch(dict(request.labels), after_revision=request.after_revision)
        async with aclosing(changes):
            async for record in changes:
                await context.write(info_message(record))

    async def delete(self, request: pb.DeleteSandboxRequest, _: Context) -> pb.SandboxInfo:
        return info_message(await self._core.delete(request.id))

    async def renew(self, request: pb.RenewSandboxRequest, _: Context) -> pb.SandboxInfo:
        return info_message(await self._core.renew(request.id, seconds(request.lease, "lease")))

    async def pause(self, request: pb.PauseSandboxRequest, _: Context) -> pb.SandboxInfo:
        return info_message(await self._core.pause(request.id))

    async def resume(self, request: pb.ResumeSandboxRequest, _: Context) -> pb.SandboxInfo:
        return info_message(await self._core.resume(request.id))


def add_sandbox_service(server: grpc.aio.Server, core: SandboxCore) -> Ports:
    """Register the SandboxService on a server that has not started yet. `core` stays the caller's to close.

    Set the `url` of what it returns when REST is served.
    """
    tree = CheckpointTree(core)
    service, snapshots = _SandboxService(core, tree), SnapshotCalls(tree)
    acts: dict[str, Act] = {
        "Create": service.create,
        "CreateMany": service.create_many,
        "Get": service.get,
        "List": service.list,
        "Watch": service.watch,
        "Delete": service.delete,
        "Pause": service.pause,
        "Resume": service.resume,
        "Renew": service.renew,
        "Snapshot": snapshots.snapshot,
        "Restore": snapshots.restore,
        "Fork": snapshots.fork,
        "GetSnapshot": snapshots.get_snapshot,
        "ListSnapshots": snapshots.list_snapshots,
        "DeleteSnapshot": snapshots.delete_snapshot,
        **ExecService(core).acts,
        **FileService(core).acts,
        **service.ports.acts,
    }
    service_descriptor = pb.DESCRIPTOR.services_by_name["SandboxService"]
    add_service(server, service_descriptor, acts, readers={"Upload": TAR.unpack})
    return service.ports
