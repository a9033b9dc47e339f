"""Containers behind a real server: killed with `kill -9`, snapshotted, forked and counted over gRPC."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest
from docker_engine import BUSYBOX, docker, engine  # noqa: F401  fixture
from test_sandboxes_outlive_servers import Server, run

from rock_env.proto.v1 import sandbox_pb2 as pb


@pytest.fixture
async def server(engine: None, tmp_path: Path) -> AsyncIterator[Server]:  # noqa: F811
    made = Server(tmp_path)
    yield made
    await made.empty("docker")
    own = f"label=rock.server={(tmp_path / 'state' / 'docker' / 'docker-id').read_text()}"
    assert not await asyncio.to_thread(docker, "ps", "-aq", "--filter", own)
    assert not await asyncio.to_thread(docker, "images", "-q", "--filter", own)


@pytest.mark.first
async def test_containers_outlive_a_killed_server(server: Server) -> None:
    asked = pb.CreateSandboxRequest(idempotency_key="a", spec=pb.SandboxSpec(image=BUSYBOX))
    async with server.running(signal.SIGKILL) as stub:
        made = await stub.Create(asked, wait_for_ready=True)
        assert await run(stub, made.id, "echo kept > file; echo $((6 * 7))") == b"42\n"
        snapshot = await stub.Snapshot(pb.SnapshotSandboxRequest(id=made.id))
        forked = (await stub.Fork(pb.ForkSandboxRequest(id=made.id, count=3))).sandboxes
    async with server.running(signal.SIGTERM) as stub:
        again = await stub.Create(asked, wait_for_ready=True)
        assert (again.id, again.state) == (made.id, pb.SANDBOX_STATE_RUNNING)
        for info in (made, *forked):
            assert await run(stub, info.id, "cat file; echo changed > file") == b"kept\n"
        await stub.Restore(pb.RestoreSandboxRequest(id=made.id, snapshot_id=snapshot.snapshot_id))
        assert await run(stub, made.id, "cat file") == b"kept\n"
        container = await asyncio.to_thread(docker, "ps", "-q", "--filter", f"name={forked[0].id}")
        await asyncio.to_thread(docker, "rm", "-f", container)
        changes = stub.Watch(pb.WatchSandboxesRequest())
        while (info := await changes.read()).id != forked[0].id or info.state != pb.SANDBOX_STATE_FAILED:
            pass
        assert "killed from outside" in info.reason
        changes.cancel()
        unknown = pb.CreateSandboxRequest(spec=pb.SandboxSpec(image="no/such:image"))
        with pytest.raises(grpc.aio.AioRpcError, match="docker pull no/such:image") as raised:
            await stub.Create(unknown)
        assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT
