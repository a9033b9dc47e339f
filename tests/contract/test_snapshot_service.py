"""The checkpoint tree over gRPC, on real processes: contents, lineage, lists, leases and refusals."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from typing import Any

import grpc
import pytest
from fences import why_not_isolated
from google.protobuf.duration_pb2 import Duration

from rock_env.backends.process.backend import ProcessBackend
from rock_env.proto.v1 import sandbox_pb2 as pb
from rock_env.proto.v1.sandbox_pb2_grpc import SandboxServiceStub
from rock_env.server.sandboxes.core import SandboxCore
from rock_env.server.services.sandboxes import add_sandbox_service
from rock_env.store.sqlite.records import SqliteStore

RUNNING, PAUSED = pb.SANDBOX_STATE_RUNNING, pb.SANDBOX_STATE_PAUSED
READY, DELETED, COLLECTED = pb.SNAPSHOT_STATE_READY, pb.SNAPSHOT_STATE_DELETED, pb.SNAPSHOT_STATE_COLLECTED


@pytest.fixture(params=["namespaces", "none"])
def isolation(request: pytest.FixtureRequest) -> Any:
    if request.param == "namespaces" and why_not_isolated():
        pytest.skip(f"no isolation here: {why_not_isolated()}")
    return request.param


@pytest.fixture
async def stub(isolation: Any, tmp_path: Path) -> AsyncIterator[Any]:
    backend = ProcessBackend(root=tmp_path / "boxes", isolation=isolation)
    (tmp_path / "boxes").mkdir()
    server = grpc.aio.server()
    async with await SqliteStore.open() as records, SandboxCore(backend, records) as core:
        add_sandbox_service(server, core)
        server.add_insecure_port(f"unix://{tmp_path}/socket")
        await server.start()
        async with grpc.aio.insecure_channel(f"unix://{tmp_path}/socket") as channel:
            yield SandboxServiceStub(channel)
        core.stop()
        await server.stop(None)
        await asyncio.gather(*(core.delete(each) for each in tuple(core.ledger.held)))
        (census,) = await core.census()
        assert (census.boxes, census.ghosts, census.orphans, census.stray_layers) == (0, {}, {}, ())
    await backend.close()


async def run(stub: Any, sandbox_id: str, script: str) -> str:
    start = pb.ExecStart(sandbox_id=sandbox_id, argv=["sh", "-c", script])
    events = stub.Exec(iter([pb.ExecRequest(start=start)]))
    return b"".join([event.stdout.data async for event in events]).decode()


async def refusal(call: Awaitable[Any]) -> tuple[str, str]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value.code().name, caught.value.details()


async def create(stub: Any, **fields: Any) -> str:
    return str((await stub.Create(pb.CreateSandboxRequest(**fields))).id)


async def freeze(stub: Any, sandbox_id: str, **fields: Any) -> pb.SnapshotInfo:
    return (await stub.Snapshot(pb.SnapshotSandboxRequest(id=sandbox_id, **fields))).snapshot


async def test_a_tree_grows_and_shrinks(stub: Any) -> None:
    box = await create(stub)
    await run(stub, box, "echo one > file")
    root = await freeze(stub, box, labels={"turn": "1"})
    await run(stub, box, "echo two >> file; mkdir d; touch d/x")
    leaf = await freeze(stub, box, labels={"turn": "2"})
    assert (root.parent, leaf.parent, leaf.sandbox_id, leaf.state) == ("", root.id, box, READY)
    assert leaf.bytes > 0
    await run(stub, box, "rm -r file d; echo lost > other")

    left, right = [await create(stub, snapshot_id=leaf.id) for _ in range(2)]
    assert await run(stub, left, "cat file; ls") == "one\ntwo\nd\nfile\n"
    await run(stub, left, "echo left > file")
    assert await run(stub, right, "cat file") == "one\ntwo\n"
    other = await create(stub, snapshot_id=root.id)
    assert await run(stub, other, "cat file; ls") == "one\nfile\n"

    restored = await stub.Restore(pb.RestoreSandboxRequest(id=box, snapshot_id=leaf.id))
    assert (restored.state, restored.snapshot_id) == (RUNNING, leaf.id)
    assert await run(stub, box, "cat file; ls") == "one\ntwo\nd\nfile\n"
    info = await stub.GetSnapshot(pb.GetSnapshotRequest(id=root.id))
    assert (info.children, info.boxes, dict(info.labels)) == (1, 1, {"turn": "1"})
    assert (await stub.GetSnapshot(pb.GetSnapshotRequest(id=leaf.id))).boxes == 3

    assert (await stub.DeleteSnapshot(pb.DeleteSnapshotRequest(id=root.id))).state == DELETED
    assert await run(stub, other, "cat file") == "one\n", "it is kept while somebody needs it"
    assert (await refusal(stub.Create(pb.CreateSandboxRequest(snapshot_id=root.id))))[0] == "NOT_FOUND"
    for each in (left, right, other, box):
        await stub.Delete(pb.DeleteSandboxRequest(id=each))
    assert (await stub.DeleteSnapshot(pb.DeleteSnapshotRequest(id=leaf.id))).state == COLLECTED
    assert (await stub.GetSnapshot(pb.GetSnapshotRequest(id=root.id))).state == COLLECTED


async def test_processes_go_on_after_a_snapshot_and_end_at_a_restore(stub: Any) -> None:
    box = await create(stub)
    await run(stub, box, "(setsid sh -c 'while :; do date +%N > beat; sleep 0.01; done' &)")
    snapshot = await freeze(stub, box)
    beats = 'until test -s beat; do :; done; a=$(cat beat); while [ "$a" = "$(cat beat)" ]; do :; done; echo beats'
    assert await run(stub, box, beats) == "beats\n"
    await stub.Pause(pb.PauseSandboxRequest(id=box))
    await freeze(stub, box)
    assert (await stub.Get(pb.GetSandboxRequest(id=box))).state == PAUSED
    await stub.Restore(pb.RestoreSandboxRequest(id=box, snapshot_id=snapshot.id))
    assert (
        await run(stub, box, 'rm beat; sleep 0.1; test -e beat || echo "nobody writes"') == "nobody writes\n"
    )


async def test_forks_are_equal_and_independent(stub: Any) -> None:
    box = await create(stub, labels={"team": "a"}, environment="swe")
    await run(stub, box, "echo same > file")
    request = pb.ForkSandboxRequest(id=box, count=4, idempotency_key="k")
    request.lease.FromSeconds(100)
    forks = (await stub.Fork(request)).sandboxes
    again = (await stub.Fork(request)).sandboxes
    assert [info.id for info in again] == [info.id for info in forks]
    assert {(info.environment, info.labels["team"], info.state) for info in forks} == {("swe", "a", RUNNING)}
    assert all(info.HasField("lease_expires_at") for info in forks)
    await asyncio.gather(*(run(stub, info.id, f"echo {info.id} >> file") for info in forks))
    for info in forks:
        assert await run(stub, info.id, "cat file") == f"same\n{info.id}\n"
    assert not (await stub.ListSnapshots(pb.ListSnapshotsRequest())).snapshots, "nobody asked for one by name"
    hidden = (await stub.ListSnapshots(pb.ListSnapshotsRequest(states=[DELETED]))).snapshots
    assert [(info.sandbox_id, info.boxes) for info in hidden] == [(box, 5)]
    await asyncio.gather(*(stub.Delete(pb.DeleteSandboxRequest(id=each.id)) for each in (*forks, again[0])))
    await stub.Delete(pb.DeleteSandboxRequest(id=box))
    assert not (await stub.ListSnapshots(pb.ListSnapshotsRequest(states=[DELETED]))).snapshots
    other = pb.ForkSandboxRequest(id=box, count=5, idempotency_key="k")
    assert (await refusal(stub.Fork(other)))[0] == "FAILED_PRECONDITION"


async def test_snapshots_are_listed_in_pages_by_sandbox_and_label(stub: Any) -> None:
    boxes = [await create(stub) for _ in range(2)]
    made = [await freeze(stub, box, labels={"n": str(number)}) for box in boxes for number in range(2)]

    async def listed(**fields: Any) -> list[str]:
        seen, token = [], ""
        while True:
            page = await stub.ListSnapshots(pb.ListSnapshotsRequest(page_size=1, page_token=token, **fields))
            seen += [info.id for info in page.snapshots]
            token = page.next_page_token
            if not token:
                return seen

    assert await listed() == sorted(info.id for info in made)
    assert await listed(sandbox_id=boxes[0]) == sorted(info.id for info in made[:2])
    assert await listed(labels={"n": "1"}) == sorted([made[1].id, made[3].id])
    code, _ = await refusal(stub.ListSnapshots(pb.ListSnapshotsRequest(states=[99])))
    assert code == "INVALID_ARGUMENT"


async def test_what_cannot_be_is_refused(stub: Any) -> None:
    box = await create(stub)
    snapshot = await freeze(stub, box)
    spec = pb.SandboxSpec(image="debian")
    restless = pb.ForkSandboxRequest(id=box, count=1, idle_timeout=Duration(nanos=10_000_000))
    for call, code, said in (
        (stub.Snapshot(pb.SnapshotSandboxRequest(id="sb-no")), "NOT_FOUND", "no sandbox"),
        (stub.Fork(pb.ForkSandboxRequest(id=box, count=0)), "INVALID_ARGUMENT", "expected 1 to"),
        (stub.Fork(restless), "INVALID_ARGUMENT", "idle_timeout must be at least"),
        (stub.Restore(pb.RestoreSandboxRequest(id=box, snapshot_id="sn-no")), "NOT_FOUND", "ListSnapshots"),
        (stub.Create(pb.CreateSandboxRequest(snapshot_id="sn-no")), "NOT_FOUND", "ListSnapshots"),
        (
            stub.Create(pb.CreateSandboxRequest(snapshot_id=snapshot.id, spec=spec)),
            "INVALID_ARGUMENT",
            "leave the image out",
        ),
        (stub.GetSnapshot(pb.GetSnapshotRequest(id="sn-no")), "NOT_FOUND", "no snapshot"),
        (stub.DeleteSnapshot(pb.DeleteSnapshotRequest(id="sn-no")), "NOT_FOUND", "no snapshot"),
    ):
        got, message = await refusal(call)
        assert (got, said in message) == (code, True)
    await stub.Delete(pb.DeleteSandboxRequest(id=box))
    code, said = await refusal(stub.Snapshot(pb.SnapshotSandboxRequest(id=box)))
    assert (code, "DELETED (deleted by its user)" in said) == ("FAILED_PRECONDITION", True)


async def test_a_retried_create_from_a_snapshot_finds_its_sandbox_after_the_snapshot_is_gone(
    stub: Any,
) -> None:
    box = await create(stub)
    snapshot = await freeze(stub, box)
    request = pb.CreateSandboxRequest(snapshot_id=snapshot.id, idempotency_key="k")
    made = await stub.Create(request)
    await stub.DeleteSnapshot(pb.DeleteSnapshotRequest(id=snapshot.id))
    assert (await stub.Create(request)).id == made.id
