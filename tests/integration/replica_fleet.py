"""Real servers of one store, for the tests of replicas."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from rock_env.proto.v1 import sandbox_pb2 as pb
from rock_env.proto.v1.admin_pb2_grpc import AdminServiceStub
from rock_env.proto.v1.sandbox_pb2_grpc import SandboxServiceStub

LEASE_S = 6.0
"""Longer than a busy machine lets a living server wait for its turn."""


class Server:
    """One server process and a channel to it."""

    def __init__(self, process: subprocess.Popen[str], address: str, http: str) -> None:
        self.process = process
        self.address = address
        self.http = http
        """Where REST is, with the option `--http`."""
        self.channel = grpc.aio.insecure_channel(address.removeprefix("grpc://"))
        self.boxes: Any = SandboxServiceStub(self.channel)
        self.admin: Any = AdminServiceStub(self.channel)

    async def serving(self) -> bool:
        reply = await health_pb2_grpc.HealthStub(self.channel).Check(health_pb2.HealthCheckRequest())
        return bool(reply.status == health_pb2.HealthCheckResponse.SERVING)

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)

    async def ended(self) -> int:
        return await asyncio.to_thread(self.process.wait)


class Fleet:
    """Servers of one node and one store."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.url = url
        self.servers: list[Server] = []

    async def start(self, *options: str) -> Server:
        command = [sys.executable, "-m", "rock_env.server", "--listen=127.0.0.1:0", "--isolation=none"]
        command += [
            f"--state={self.folder}",
            f"--store={self.url}",
            f"--replica-lease-s={LEASE_S}",
            "--workers=1",
        ]
        command += options or ["--insecure"]
        number = len(self.servers)

        asked = any(option.startswith("--http=") for option in options)

        def spawn() -> tuple[subprocess.Popen[str], str, str]:
            with (self.folder / f"log{number}").open("w") as log:
                process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
            assert process.stdout is not None
            address = process.stdout.readline().strip()
            if not address:  # it was refused, and ends
                process.communicate()
            assert address, self.log(number)
            return process, address, process.stdout.readline().strip() if asked else ""

        server = Server(*await asyncio.to_thread(spawn))
        self.servers.append(server)
        return server

    def log(self, number: int) -> str:
        return (self.folder / f"log{number}").read_text()

    async def stop(self) -> None:
        """Delete what is left, through whoever lives, and end all."""
        living = [it for it in self.servers if it.process.poll() is None]
        if not living:
            living = [await self.start()]
        with contextlib.suppress(grpc.aio.AioRpcError):
            for info in (await living[-1].boxes.List(pb.ListSandboxesRequest(), timeout=60)).sandboxes:
                await living[-1].boxes.Delete(pb.DeleteSandboxRequest(id=info.id), timeout=60)
        for server in self.servers:
            server.process.terminate()
        for server in self.servers:
            await server.channel.close()
            await server.ended()
            assert server.process.stdout is not None
            server.process.stdout.close()


@contextlib.asynccontextmanager
async def running_fleet(url: str) -> AsyncIterator[Fleet]:
    """Yield a fleet without servers; afterwards end those it has by then, and their sandboxes."""
    folder = Path(tempfile.mkdtemp(prefix="rock-r-"))  # short: a socket's path has at most 107 characters
    made = Fleet(folder, url)
    try:
        yield made
    finally:
        try:
            await made.stop()
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def start_of(sandbox_id: str, script: str, **fields: Any) -> pb.ExecRequest:
    start = pb.ExecStart(
        sandbox_id=sandbox_id, argv=["bash", "-c", script], timeout={"seconds": 60}, **fields
    )
    return pb.ExecRequest(start=start)


async def run(stub: Any, sandbox_id: str, script: str, **call: Any) -> bytes:
    """Return what the script wrote. Raise `ConnectionError` where its box was lost meanwhile, which is no result."""
    events = [event async for event in stub.Exec(iter([start_of(sandbox_id, script)]), **call)]
    if events[-1].exit.infra_error:
        raise ConnectionError(events[-1].exit.infra_error)
    return b"".join(event.stdout.data for event in events)


async def refusal(call: Awaitable[Any]) -> tuple[str, str, dict[str, Any]]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return (
        caught.value.code().name,
        caught.value.details() or "",
        dict(caught.value.trailing_metadata() or ()),
    )
