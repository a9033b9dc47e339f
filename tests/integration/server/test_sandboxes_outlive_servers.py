"""Servers with a state folder that are killed: their sandboxes, commands, snapshots and keys go on with the next one."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import psutil
import pytest
from lost_calls import lost
from waiting import until

from rock_env.proto.v1 import admin_pb2, admin_pb2_grpc
from rock_env.proto.v1 import sandbox_pb2 as pb
from rock_env.proto.v1.sandbox_pb2_grpc import SandboxServiceStub

RUNNING, PAUSED, DELETED = pb.SANDBOX_STATE_RUNNING, pb.SANDBOX_STATE_PAUSED, pb.SANDBOX_STATE_DELETED
TAKEN_UP = "taken up again after a restart"
ROUNDS, CALLERS, ANSWERS = 3, 6, 20


class Server:
    """One server process after the other on one state folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[str] | None = None
        self.address = ""

    def start(self) -> None:
        command = [
            sys.executable,
            "-m",
            "rock_env.server",
            f"--listen=unix://{self._folder}/s",
            "--workers=1",
        ]
        self._process = subprocess.Popen(
            [*command, f"--state={self._folder}/state"],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "TMPDIR": str(self._folder)},
        )
        assert self._process.stdout is not None
        self.address = self._process.stdout.readline().strip()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def end(self, number: int) -> None:
        """End it by a signal, unless it was ended before."""
        if self._process is not None:
            self._process.send_signal(number)
            self._process.communicate()
            assert self._process.returncode in (0, -number)
            self._process = None

    @asynccontextmanager
    async def running(self, end: int) -> AsyncIterator[Any]:
        """Start it, yield a stub and end it by a signal."""
        await asyncio.to_thread(self.start)
        try:
            async with grpc.aio.insecure_channel(self.address) as channel:
                yield SandboxServiceStub(channel)
        finally:
            await asyncio.to_thread(self.end, end)

    async def empty(self, backend: str) -> None:
        """Delete everything, which can be done whatever happened, and see that nothing is left."""
        async with self.running(signal.SIGTERM) as stub:
            for info in (await stub.List(pb.ListSandboxesRequest(), wait_for_ready=True)).sandboxes:
                await stub.Delete(pb.DeleteSandboxRequest(id=info.id))
            states = [pb.SNAPSHOT_STATE_READY]
            for snapshot in (await stub.ListSnapshots(pb.ListSnapshotsRequest(states=states))).snapshots:
                await stub.DeleteSnapshot(pb.DeleteSnapshotRequest(id=snapshot.id))
            async with grpc.aio.insecure_channel(self.address) as channel:
                admin: Any = admin_pb2_grpc.AdminServiceStub(channel)
                (mine,) = [
                    each
                    for each in (await admin.Census(admin_pb2.CensusRequest())).backends
                    if each.backend == backend
                ]
        assert (mine.boxes, mine.records, mine.layers, dict(mine.orphans)) == (0, 0, 0, {})


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    made = Server(tmp_path)
    yield made
    await made.empty("process")

    def left() -> list[Any]:
        living = [it.info for it in psutil.process_iter(["cmdline", "pid"])]
        return [each for each in living if str(tmp_path) in str(each["cmdline"])]

    await until(lambda: not left())


async def run(stub: Any, sandbox_id: str, script: str, **start: Any) -> bytes:
    asked = pb.ExecStart(sandbox_id=sandbox_id, argv=["sh", "-c", script], **start)
    return b"".join([event.stdout.data async for event in stub.Exec(iter([pb.ExecRequest(start=asked)]))])


async def test_kill_9_of_the_server_loses_no_running_sandbox(server: Server) -> None:
    async with server.running(signal.SIGKILL) as stub:
        runs, paused = [
            await stub.Create(pb.CreateSandboxRequest(idempotency_key=key), wait_for_ready=True)
            for key in "ab"
        ]
        assert runs.durable
        await run(
            stub,
            runs.id,
            "echo kept > file; (setsid sh -c 'while :; do date +%N > beat; sleep 0.01; done' &)",
        )
        await stub.Pause(pb.PauseSandboxRequest(id=paused.id))
        exec_ = stub.Exec()
        script = "echo before; until test -f go; do sleep 0.01; done; echo after; echo once >> count"
        start = pb.ExecStart(sandbox_id=runs.id, argv=["sh", "-c", script], idempotency_key="long")
        await exec_.write(pb.ExecRequest(start=start))
        assert (await exec_.read()).stdout.data == b"before\n"
    async with server.running(signal.SIGTERM) as stub:
        again = await stub.Create(pb.CreateSandboxRequest(idempotency_key="a"), wait_for_ready=True)
        assert (again.id, again.state, again.reason) == (runs.id, RUNNING, TAKEN_UP)
        assert await run(stub, runs.id, "cat file") == b"kept\n"
        beats = 'a=$(cat beat); while [ "$a" = "$(cat beat)" ]; do sleep 0.01; done; echo beats'
        assert await run(stub, runs.id, beats) == b"beats\n", "what ran in the background runs"
        await stub.WriteFile(iter([pb.WriteFileRequest(sandbox_id=runs.id, path="go")]))
        resumed = await run(stub, runs.id, script, idempotency_key="long", stdout_offset=7)
        assert resumed == b"after\n", "the command ran on, and its output continues where it broke off"
        assert await run(stub, runs.id, "cat count") == b"once\n"
        info = await stub.Get(pb.GetSandboxRequest(id=paused.id))
        assert (info.state, info.reason) == (PAUSED, TAKEN_UP)
        await stub.Resume(pb.ResumeSandboxRequest(id=paused.id))
        assert await run(stub, paused.id, "echo resumed") == b"resumed\n"
    async with server.running(
        signal.SIGTERM
    ) as stub:  # a server that is asked to stop lets go of them as well
        info = await stub.Get(pb.GetSandboxRequest(id=runs.id), wait_for_ready=True)
        assert (info.state, [change.reason for change in info.history][2:]) == (RUNNING, [TAKEN_UP] * 2)


async def test_a_lease_ends_a_sandbox_while_the_server_is_dead(server: Server) -> None:
    async with server.running(signal.SIGKILL) as stub:
        made = await stub.Create(pb.CreateSandboxRequest(), wait_for_ready=True)
        await run(stub, made.id, "(setsid sleep 600 &)")
        boxes = psutil.Process(server.pid).children(recursive=True)
        await stub.Renew(pb.RenewSandboxRequest(id=made.id, lease={"seconds": 1}))
    gone, alive = await asyncio.to_thread(psutil.wait_procs, boxes, timeout=30)
    assert gone
    assert not alive, "its box ended by itself"
    async with server.running(signal.SIGTERM) as stub:
        info = await stub.Get(pb.GetSandboxRequest(id=made.id), wait_for_ready=True)
        assert (info.state, info.reason) == (DELETED, "its lease expired")


async def test_snapshots_and_forks_outlive_a_server(server: Server) -> None:
    async with server.running(signal.SIGKILL) as stub:
        source = await stub.Create(pb.CreateSandboxRequest(), wait_for_ready=True)
        await run(stub, source.id, "mkdir -p d; echo one > d/file; chmod 600 d/file; ln -s d/file link")
        frozen = await stub.Snapshot(pb.SnapshotSandboxRequest(id=source.id, idempotency_key="k"))
        await run(stub, source.id, "echo two > d/file; echo new > other; rm link")
        forks = await stub.Fork(pb.ForkSandboxRequest(id=source.id, count=3, idempotency_key="k"))
    look = "cat d/file; ls; stat -c %a d/file"
    async with server.running(signal.SIGTERM) as stub:
        await stub.Get(pb.GetSandboxRequest(id=source.id), wait_for_ready=True)
        again = await stub.Fork(pb.ForkSandboxRequest(id=source.id, count=3, idempotency_key="k"))
        assert [info.id for info in again.sandboxes] == [info.id for info in forks.sandboxes]
        for fork in again.sandboxes:
            assert await run(stub, fork.id, look) == b"two\nd\nother\n600\n"
        await run(stub, again.sandboxes[0].id, "echo mine > d/file")
        assert await run(stub, again.sandboxes[1].id, "cat d/file") == b"two\n"
        made = await stub.Create(pb.CreateSandboxRequest(snapshot_id=frozen.snapshot_id))
        assert await run(stub, made.id, look) == b"one\nd\nlink\n600\n"
        await stub.Restore(pb.RestoreSandboxRequest(id=source.id, snapshot_id=frozen.snapshot_id))
        assert await run(stub, source.id, look) == b"one\nd\nlink\n600\n"


class Callers:
    """Who create, write to and delete sandboxes, and what the servers told them."""

    def __init__(self) -> None:
        self.made: dict[str, str] = {}
        self.wrote: dict[str, int] = {}
        self.deleted: set[str] = set()
        self.asked_to_delete: set[str] = set()
        self.keys = 0

    async def work(self, stub: Any, enough: int, reached: asyncio.Event) -> None:
        try:
            while True:
                self.keys += 1
                key = f"k{self.keys}"
                made = await stub.Create(pb.CreateSandboxRequest(idempotency_key=key), wait_for_ready=True)
                self.made[key] = made.id
                for _ in range(2):
                    line = f"echo {self.wrote.get(key, 0) + 1} >> log; wc -l < log"
                    said = await run(stub, made.id, line)
                    if said:
                        self.wrote[key] = int(said)
                if len(self.made) % 2:
                    self.asked_to_delete.add(key)
                    await stub.Delete(pb.DeleteSandboxRequest(id=made.id))
                    self.deleted.add(key)
                if len(self.made) >= enough:
                    reached.set()
        except grpc.aio.AioRpcError as error:
            assert lost(error), error  # noqa: PT017  any other one is a bug

    async def check(self, stub: Any) -> None:
        """Nothing that was acknowledged is lost, and what lives has what was written."""
        for key, sandbox_id in self.made.items():
            again = await stub.Create(pb.CreateSandboxRequest(idempotency_key=key), wait_for_ready=True)
            assert again.id == sandbox_id, "the same key, the same sandbox"
            if key in self.deleted:
                assert again.state == DELETED
            elif key not in self.asked_to_delete:
                assert (again.state, again.reason) == (RUNNING, TAKEN_UP)
                lines = int(await run(stub, sandbox_id, "cat log 2>/dev/null | wc -l"))
                assert lines >= self.wrote.get(key, 0)
                await stub.Delete(pb.DeleteSandboxRequest(id=sandbox_id))
                self.deleted.add(key)
        assert len(set(self.made.values())) == len(self.made), "no sandbox has two keys"


async def test_a_server_killed_under_load_loses_no_sandbox(server: Server) -> None:
    callers = Callers()
    for _ in range(ROUNDS):
        async with server.running(signal.SIGKILL) as stub, asyncio.TaskGroup() as group:
            await callers.check(stub)
            reached, enough = asyncio.Event(), len(callers.made) + ANSWERS
            for _ in range(CALLERS):
                group.create_task(callers.work(stub, enough, reached))
            await reached.wait()
            await asyncio.to_thread(server.end, signal.SIGKILL)
    async with server.running(signal.SIGTERM) as stub:
        await callers.check(stub)
    assert len(callers.made) >= ROUNDS * ANSWERS
