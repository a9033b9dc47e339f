"""A rolling restart: boxes and running commands of an earlier release are taken up by this one, and lose nothing."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tarfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from rock_env.proto.v1 import sandbox_pb2 as pb
from rock_env.proto.v1.sandbox_pb2_grpc import SandboxServiceStub

ROOT = Path(__file__).parents[3]
BEFORE = "ad53c2b902597aef9c51a170227b1171a8fe34a1"
"""The release whose guests tell no version of their protocol."""
BOXES = 50
SCRIPT = "echo before; until test -f go; do sleep 0.05; done; echo after; echo once >> count"


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Unpack the earlier release."""
    folder = tmp_path_factory.mktemp("release")
    packed = folder / "release.tar"
    done = subprocess.run(
        ["git", "archive", f"--output={packed}", BEFORE, "rock_env", "sandboxes"], cwd=ROOT, check=False
    )
    if done.returncode:
        pytest.skip(f"commit {BEFORE[:12]} is not in this clone: get it with `git fetch --unshallow`")
    with tarfile.open(packed) as archive:
        archive.extractall(folder, filter="data")
    return folder


@asynccontextmanager
async def serving(tree: Path, folder: Path, end: signal.Signals) -> AsyncIterator[Any]:
    """Run the server of a source tree on the state folder, and end it by a signal."""
    words = [f"--listen=unix://{folder}/s", "--workers=1", f"--state={folder}/state"]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "rock_env.server",
        *words,
        stdout=subprocess.PIPE,
        cwd=tree,
        env={**os.environ, "TMPDIR": str(folder), "PYTHONPATH": str(tree)},
    )
    assert process.stdout is not None
    try:
        address = (await process.stdout.readline()).decode().strip()
        assert address
        async with grpc.aio.insecure_channel(address) as channel:
            yield SandboxServiceStub(channel)
    finally:
        process.send_signal(end)
        await process.wait()


async def output(stub: Any, sandbox_id: str, offset: int) -> bytes:
    start = pb.ExecStart(
        sandbox_id=sandbox_id, argv=["sh", "-c", SCRIPT], idempotency_key="long", stdout_offset=offset
    )
    return b"".join([event.stdout.data async for event in stub.Exec(iter([pb.ExecRequest(start=start)]))])


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL], ids=["drained", "killed"])
async def test_boxes_of_the_release_before_go_on(release: Path, tmp_path: Path, end: signal.Signals) -> None:
    async with serving(release, tmp_path, end) as stub:
        boxes = [
            await stub.Create(pb.CreateSandboxRequest(idempotency_key=f"b{n}"), wait_for_ready=True)
            for n in range(BOXES)
        ]
        calls = []
        for box in boxes:
            call = stub.Exec()
            start = pb.ExecStart(sandbox_id=box.id, argv=["sh", "-c", SCRIPT], idempotency_key="long")
            await call.write(pb.ExecRequest(start=start))
            assert (await call.read()).stdout.data == b"before\n"
            calls.append(call)
    async with serving(ROOT, tmp_path, signal.SIGTERM) as stub:
        again = {
            box.id: box for box in (await stub.List(pb.ListSandboxesRequest(), wait_for_ready=True)).sandboxes
        }
        assert {box.id for box in boxes} == {
            found.id for found in again.values() if found.state == pb.SANDBOX_STATE_RUNNING
        }
        for box in boxes:
            await stub.WriteFile(iter([pb.WriteFileRequest(sandbox_id=box.id, path="go")]))
        told = await asyncio.gather(*(output(stub, box.id, len(b"before\n")) for box in boxes))
        assert told == [b"after\n"] * BOXES
        for box in boxes:
            chunks = [
                chunk.data
                async for chunk in stub.ReadFile(pb.ReadFileRequest(sandbox_id=box.id, path="count"))
            ]
            assert b"".join(chunks) == b"once\n"
            await stub.Delete(pb.DeleteSandboxRequest(id=box.id))
