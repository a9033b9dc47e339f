"""Sandbox servers that are killed: nothing acknowledged is lost, nothing is made twice, and what was lost is said."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import psutil
import pytest
from lost_calls import lost

from rock_env.proto.v1 import sandbox_pb2 as pb
from rock_env.proto.v1.sandbox_pb2_grpc import SandboxServiceStub

ENDED = (pb.SANDBOX_STATE_FAILED, pb.SANDBOX_STATE_DELETING, pb.SANDBOX_STATE_DELETED)
ROUNDS, ACKNOWLEDGED_PER_ROUND, CALLERS = 3, 25, 8


def start_server(folder: Path) -> tuple[subprocess.Popen[str], str]:
    command = [sys.executable, "-m", "rock_env.server", f"--listen=unix://{folder}/s", "--isolation=none"]
    process = subprocess.Popen(
        [*command, "--workers=1", f"--store={folder}/store.db"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(folder)},
    )
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


async def test_a_killed_server_keeps_its_records_and_says_what_was_lost(tmp_path: Path) -> None:
    request = pb.CreateSandboxRequest(idempotency_key="k", labels={"team": "a"})
    process, address = await asyncio.to_thread(start_server, tmp_path)
    async with grpc.aio.insecure_channel(address) as channel:
        stub: Any = SandboxServiceStub(channel)
        made = await stub.Create(request, wait_for_ready=True)
        boxes = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGKILL)
        await asyncio.to_thread(process.communicate)
    _, left = await asyncio.to_thread(psutil.wait_procs, boxes, timeout=30)
    assert not left, "its boxes died with it"
    process, address = await asyncio.to_thread(start_server, tmp_path)
    try:
        async with grpc.aio.insecure_channel(address) as channel:
            stub = SandboxServiceStub(channel)
            again = await stub.Create(request, wait_for_ready=True)
            assert again.id == made.id
            assert again.history[:2] == made.history
            states = [(change.state, change.reason) for change in again.history[2:]]
            assert states == [(state, "server restarted") for state in ENDED]
            assert not (await stub.List(pb.ListSandboxesRequest())).sandboxes
            missed = stub.Watch(pb.WatchSandboxesRequest(after_revision=made.revision))
            assert await missed.read() == again
            process.terminate()
            with pytest.raises(grpc.aio.AioRpcError, match="the server is stopping") as caught:
                await missed.read()
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    finally:
        process.terminate()
        await asyncio.to_thread(process.communicate)
    assert process.returncode == 0


class Callers:
    """Who create sandboxes and delete every other one, and what the server told them."""

    def __init__(self) -> None:
        self.keys: Iterator[int] = itertools.count()
        self.made: dict[str, str] = {}
        self.deleted: set[str] = set()
        self.asked: set[str] = set()

    async def work(self, stub: Any, enough: int, reached: asyncio.Event) -> None:
        try:
            while True:
                key = f"k{next(self.keys)}"
                self.asked.add(key)
                self.made[key] = (await stub.Create(pb.CreateSandboxRequest(idempotency_key=key))).id
                if len(self.made) >= enough:
                    reached.set()
                if len(self.made) % 2:
                    await stub.Delete(pb.DeleteSandboxRequest(id=self.made[key]))
                    self.deleted.add(key)
        except grpc.aio.AioRpcError as error:
            assert lost(error), error  # noqa: PT017  any other one is a bug

    async def check(self, stub: Any) -> None:
        """Repeat every Create that was ever made, in any order."""
        for key in self.asked:
            again = await stub.Create(pb.CreateSandboxRequest(idempotency_key=key), wait_for_ready=True)
            assert self.made.setdefault(key, again.id) == again.id, "the same key, the same sandbox"
            if key in self.deleted:
                assert (again.state, again.reason) == (pb.SANDBOX_STATE_DELETED, "deleted by its user")
            elif again.state != pb.SANDBOX_STATE_DELETED:
                assert again.state == pb.SANDBOX_STATE_RUNNING, "one that was lost half made is made afresh"
                await stub.Delete(pb.DeleteSandboxRequest(id=again.id))
                self.deleted.add(key)
        assert len(set(self.made.values())) == len(self.made), "no sandbox has two keys"
        assert not (await stub.List(pb.ListSandboxesRequest())).sandboxes


async def test_a_server_killed_under_load_loses_and_doubles_nothing(tmp_path: Path) -> None:
    callers = Callers()
    for _ in range(ROUNDS):
        process, address = await asyncio.to_thread(start_server, tmp_path)
        async with grpc.aio.insecure_channel(address) as channel:
            stub: Any = SandboxServiceStub(channel)
            await callers.check(stub)
            reached = asyncio.Event()
            enough = len(callers.made) + ACKNOWLEDGED_PER_ROUND
            async with asyncio.TaskGroup() as group:
                for _ in range(CALLERS):
                    group.create_task(callers.work(stub, enough, reached))
                await reached.wait()
                boxes = psutil.Process(process.pid).children(recursive=True)
                process.send_signal(signal.SIGKILL)
        await asyncio.to_thread(process.communicate)
        _, left = await asyncio.to_thread(psutil.wait_procs, boxes, timeout=30)
        assert not left, "its processes died with it"
    process, address = await asyncio.to_thread(start_server, tmp_path)
    try:
        async with grpc.aio.insecure_channel(address) as channel:
            await callers.check(SandboxServiceStub(channel))
    finally:
        process.terminate()
        await asyncio.to_thread(process.communicate)
    assert len(callers.made) >= ROUNDS * ACKNOWLEDGED_PER_ROUND
