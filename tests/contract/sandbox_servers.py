"""The SandboxService over a real socket and real processes, for the suites of its calls."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import grpc
import transports

from rock_env.backends.process.backend import ProcessBackend
from rock_env.proto.v1 import sandbox_pb2 as pb
from rock_env.proto.v1.sandbox_pb2_grpc import SandboxServiceStub
from rock_env.server.sandboxes.core import SandboxCore
from rock_env.server.services.sandboxes import add_sandbox_service
from rock_env.store.sqlite.records import SqliteStore


async def emptied(stub: Any) -> None:
    """Delete all that tests left at servers that go on."""
    for snapshot in (await stub.ListSnapshots(pb.ListSnapshotsRequest())).snapshots:
        await stub.DeleteSnapshot(pb.DeleteSnapshotRequest(id=snapshot.id))
    for info in (await stub.List(pb.ListSandboxesRequest())).sandboxes:
        await stub.Delete(pb.DeleteSandboxRequest(id=info.id))


@asynccontextmanager
async def serving(
    folder: Path,
    isolation: Literal["namespaces", "none"] = "none",
    store: Path | None = None,
    transport: str = transports.FIRST,
) -> AsyncIterator[Any]:
    """Serve sandboxes on a socket in `folder` and yield a stub; or one of the servers that run already."""
    there = transports.running()
    if there is not None:
        async with transports.channel(there.address if transport == "grpc" else there.http) as channel:
            stub = SandboxServiceStub(channel)
            await emptied(stub)  # the work of an environment's test may outlive it
            yield stub
            await emptied(stub)
        return
    (folder / "boxes").mkdir(exist_ok=True)
    backend = ProcessBackend(root=folder / "boxes", isolation=isolation)
    server = grpc.aio.server()
    async with await SqliteStore.open(store) as records, SandboxCore(backend, records) as core:
        add_sandbox_service(server, core)
        async with transports.started(server, f"unix://{folder}/socket", transport) as channel:
            yield SandboxServiceStub(channel)
        core.stop()
        await server.stop(None)
    await backend.close()
