"""Cycles of work through two servers of one PostgreSQL while faults strike servers, database, guests and disk.

Used by `tests/chaos` (short) and `benchmarks.chaos` (a thousand cycles). Calls go through a balancer that gives each
connection the next server and drops those of a server that was stopped, as one does that asks for health. Beside what
`fault_harness` has each cycle do, every fourth makes a snapshot and a sandbox of it: an acknowledged snapshot must be there,
with its content, whatever became of the sandbox.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import grpc
from fault_harness import (
    BREATH_S,
    CALL_S,
    DISK_BYTES,
    RETRY_S,
    TOYS,
    Caller,
    Harness,
    Report,
    _kill_process,
    _kind,
    _must_have_run,
)
from integration.postgres_server import PostgresServer, databases, postgres_server
from integration.replica_fleet import LEASE_S, Fleet, Server, running_fleet

from rock_env.errors import FailedPrecondition, InfraError, NotFound
from rock_env.proto.v1 import admin_pb2, sandbox_pb2
from rock_env.wire.channel import CLIENT_OPTIONS

STOPPED_S = 20.0
AWAY_S = 1.5 * LEASE_S
"""For how long the database is away at times: longer than a server's lease."""
HEALTH_S = 3.0
"""After so long a balancer knows that a server does not answer."""
SNAPSHOTS_EVERY = 4


class Balancer:
    """Gives each connection the next of the servers that it takes for healthy."""

    def __init__(self) -> None:
        self.healthy: list[Server] = []
        self._turn = itertools.count()
        self._relays: dict[asyncio.Task[None], Server] = {}

    def drop(self, server: Server) -> None:
        """Give the server no connection any more, and end those that it has."""
        if server in self.healthy:
            self.healthy.remove(server)
        for task, its in tuple(self._relays.items()):
            if its is server:
                task.cancel()

    @asynccontextmanager
    async def listening(self, path: Path) -> AsyncIterator[None]:
        listener = await asyncio.start_unix_server(self._accept, str(path))
        try:
            yield
        finally:
            listener.close()
            for task in tuple(self._relays):
                task.cancel()
            await asyncio.gather(*self._relays, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        sinks = [writer]
        try:
            if not self.healthy:
                return
            server = self.healthy[next(self._turn) % len(self.healthy)]
            self._relays[task] = server
            host, _, port = server.address.rpartition("/")[2].rpartition(":")
            with suppress(OSError, asyncio.CancelledError):
                there_reader, there = await asyncio.open_connection(host, int(port))
                sinks.append(there)
                async with asyncio.TaskGroup() as group:
                    group.create_task(_pump(reader, there))
                    group.create_task(_pump(there_reader, writer))
        finally:
            self._relays.pop(task, None)
            for sink in sinks:
                sink.transport.abort()


async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await source.read(1 << 16):
            sink.write(data)
            await sink.drain()
    sink.transport.abort()


class FleetHarness:
    """Runs `cycles` cycles, `width` at a time, while faults strike one after another, `pause_s` apart."""

    def __init__(self, *, servers: int = 2, seed: int = 0, stopped_s: float = STOPPED_S) -> None:
        self.report = Report()
        self._servers = servers
        self._random = random.Random(seed)
        self._stopped_s = stopped_s
        self._live: set[str] = set()
        self._disk = False
        self._all_struck = False
        self._long = itertools.count(1)

    async def run(self, cycles: int, *, width: int, pause_s: float) -> Report:
        """Return what happened in so many cycles, or more until each fault has struck once."""
        began = time.monotonic()
        async with AsyncExitStack() as stack:
            self._postgres: PostgresServer = stack.enter_context(postgres_server())
            self._fleet: Fleet = await stack.enter_async_context(running_fleet(databases(self._postgres)()))
            self._disk = await asyncio.to_thread(_mounted, self._fleet.folder)
            if self._disk:
                stack.callback(subprocess.run, ["umount", "--lazy", str(self._fleet.folder)], check=True)
            self._balancer = Balancer()
            for _ in range(self._servers):
                await self._start()
            link = self._fleet.folder / "link"
            await stack.enter_async_context(self._balancer.listening(link))
            callers = [
                Caller(
                    await stack.enter_async_context(
                        # A connection of its own each, or all would share one, at one server.
                        grpc.aio.insecure_channel(
                            f"unix:{link}", options=[*CLIENT_OPTIONS, ("grpc.use_local_subchannel_pool", 1)]
                        )
                    )
                )
                for _ in range(width)
            ]
            over, count = asyncio.Event(), itertools.count()
            numbers = itertools.takewhile(lambda it: it < cycles or not self._all_struck, count)
            async with asyncio.TaskGroup() as faults:
                faults.create_task(self._strike(pause_s, over))
                try:
                    async with asyncio.TaskGroup() as group:
                        for caller in callers:
                            group.create_task(self._work(caller, numbers))
                finally:
                    over.set()
            await self._leftovers(callers[0])
        self.report.seconds = time.monotonic() - began
        return self.report

    async def _start(self) -> None:
        server = await self._fleet.start("--insecure", f"--env={TOYS}:TOY")
        self._balancer.healthy.append(server)

    # -- the work

    async def _work(self, caller: Caller, numbers: Iterator[int]) -> None:
        single = Harness(self._fleet.folder / "unused")
        single.report = self.report
        for number in numbers:
            for part in (self._box_cycle, single._env_cycle):
                try:
                    await part(caller, number)
                except (NotFound, FailedPrecondition, InfraError) as error:
                    self.report.interrupted[_kind(error)] += 1
                    await asyncio.sleep(BREATH_S)
            self.report.cycles += 1

    async def _box_cycle(self, caller: Caller, number: int) -> None:
        request = sandbox_pb2.CreateSandboxRequest(idempotency_key=f"chaos-{number}")
        request.lease.FromSeconds(600)
        info = await caller.ask(lambda: caller.boxes.Create(request, timeout=CALL_S))
        self._live.add(info.id)
        try:
            lines = [f"{number}-{turn}" for turn in range(3)]
            for line in lines:
                script = f"echo {line} >> log && echo did {line}"
                output, end = await caller.exec(info.id, script, f"exec-{line}")
                if end.exit_code == 1 and not end.infra_error:  # the shell says so where its disk is full
                    raise FailedPrecondition("the line could not be written")
                _must_have_run(end)
                if output != f"did {line}\n".encode():
                    self.report.wrong.append(f"{info.id} {line}: answered {output!r}")
            await self._read(caller, info.id, lines, f"read-{number}")
            if number % SNAPSHOTS_EVERY == 0:
                await self._snapshot(caller, info.id, number, lines)
        finally:
            self._live.discard(info.id)
            await self._delete(caller, info.id)

    async def _read(self, caller: Caller, box: str, lines: list[str], key: str) -> None:
        output, end = await caller.exec(box, "cat log", key)
        _must_have_run(end)
        found = output.decode().split()
        self.report.lost += [f"{box} {line}" for line in lines if line not in found]
        self.report.doubled += [f"{box} {line}" for line in lines if found.count(line) > 1]
        self.report.wrong += [f"{box} {line}" for line in set(found) - set(lines)]

    async def _snapshot(self, caller: Caller, box: str, number: int, lines: list[str]) -> None:
        request = sandbox_pb2.SnapshotSandboxRequest(id=box, idempotency_key=f"snapshot-{number}")
        made = (await caller.ask(lambda: caller.boxes.Snapshot(request, timeout=CALL_S))).snapshot_id
        try:
            await self._copy(caller, made, number, lines)
        finally:
            unwanted = sandbox_pb2.DeleteSnapshotRequest(id=made)
            await self._persistently(
                lambda: caller.ask(lambda: caller.boxes.DeleteSnapshot(unwanted, timeout=CALL_S))
            )

    async def _copy(self, caller: Caller, made: str, number: int, lines: list[str]) -> None:
        """Make a sandbox of a snapshot that was acknowledged, and read what it must have."""
        wanted = sandbox_pb2.GetSnapshotRequest(id=made)
        try:
            now = await caller.ask(lambda: caller.boxes.GetSnapshot(wanted, timeout=CALL_S))
            if now.state != sandbox_pb2.SNAPSHOT_STATE_READY:
                self.report.lost.append(f"snapshot {made} is in state {now.state}")
        except NotFound as error:
            self.report.lost.append(f"snapshot {made}: {error}")
        copy = sandbox_pb2.CreateSandboxRequest(snapshot_id=made, idempotency_key=f"copy-{number}")
        copied = await caller.ask(lambda: caller.boxes.Create(copy, timeout=CALL_S))
        try:
            await self._read(caller, copied.id, lines, f"copied-{number}")
        finally:
            await self._delete(caller, copied.id)

    async def _delete(self, caller: Caller, box: str) -> None:
        request = sandbox_pb2.DeleteSandboxRequest(id=box)
        await self._persistently(lambda: caller.ask(lambda: caller.boxes.Delete(request, timeout=CALL_S)))

    async def _persistently(self, act: Callable[[], Awaitable[object]]) -> None:
        """Do it until it is done: while the disk is full it is refused, and says so."""
        end = time.monotonic() + RETRY_S
        while True:
            try:
                await act()
                return
            except InfraError as error:
                self.report.interrupted[_kind(error)] += 1
                if time.monotonic() > end:
                    raise
            await asyncio.sleep(0.2)

    # -- the faults

    async def _strike(self, pause_s: float, over: asyncio.Event) -> None:
        faults: dict[str, Callable[[], Awaitable[None]]] = {
            "database killed": self._kill_database,
            "server killed": self._kill_server,
            "server stopped": self._stop_server,
            "guest killed": self._kill_guest,
        }
        if self._disk:
            faults["disk full"] = self._fill_disk
        while True:
            for name in self._random.sample(sorted(faults), len(faults)):
                with suppress(TimeoutError):
                    async with asyncio.timeout(pause_s * (0.5 + self._random.random())):
                        await over.wait()
                    return
                await faults[name]()
                self.report.faults[name] += 1
            self._all_struck = True

    async def _kill_database(self) -> None:
        await asyncio.to_thread(self._postgres.stop, fast=False)
        await asyncio.sleep(AWAY_S if next(self._long) % 3 == 0 else self._random.random())
        await asyncio.to_thread(self._postgres.start)

    def _victim(self) -> Server:
        return self._random.choice(self._balancer.healthy)

    async def _kill_server(self) -> None:
        victim = self._victim()
        victim.kill()
        await victim.ended()
        self._balancer.drop(victim)
        await self._start()

    async def _stop_server(self) -> None:
        victim = self._victim()
        victim.process.send_signal(signal.SIGSTOP)
        await asyncio.sleep(min(HEALTH_S, self._stopped_s))
        self._balancer.drop(victim)
        await asyncio.sleep(max(self._stopped_s - HEALTH_S, 0.0))
        victim.process.send_signal(signal.SIGCONT)
        self._balancer.healthy.append(victim)

    async def _kill_guest(self) -> None:
        if self._live:
            sandbox = self._random.choice(sorted(self._live))
            await asyncio.to_thread(_kill_process, self._fleet.folder, sandbox)

    async def _fill_disk(self) -> None:
        filler = self._fleet.folder / "filler"
        await asyncio.to_thread(_fill, filler)
        await asyncio.sleep(1.0)
        filler.unlink()

    # -- what is left

    async def _leftovers(self, caller: Caller) -> None:
        end = time.monotonic() + RETRY_S
        while (left := await self._left(caller)) and time.monotonic() < end:  # noqa: ASYNC110  only the servers know
            await asyncio.sleep(1.0)
        self.report.leaked += left

    async def _left(self, caller: Caller) -> list[str]:
        every = sandbox_pb2.ListSandboxesRequest()
        boxes = await caller.ask(lambda: caller.boxes.List(every, timeout=CALL_S))
        left = [f"sandbox {info.id}: {info.reason}" for info in boxes.sandboxes]
        named = sandbox_pb2.ListSnapshotsRequest()
        snapshots = await caller.ask(lambda: caller.boxes.ListSnapshots(named, timeout=CALL_S))
        left += [f"snapshot {info.id}" for info in snapshots.snapshots]
        census = await caller.ask(lambda: caller.admin.Census(admin_pb2.CensusRequest(), timeout=60))
        for backend in census.backends:
            left += [f"{each}: {what}" for each, what in {**backend.orphans, **backend.ghosts}.items()]
            left += [f"layer {each}" for each in (*backend.stray_layers, *backend.missing_layers)]
        return left


def _mounted(folder: Path) -> bool:
    """Give the folder a small disk of its own where we may mount one."""
    words = ["mount", "-t", "tmpfs", "-o", f"size={2 * DISK_BYTES}", "rock-chaos", str(folder)]
    return os.geteuid() == 0 and subprocess.run(words, check=False).returncode == 0


def _fill(filler: Path) -> None:
    with suppress(OSError), filler.open("wb") as file:
        while True:
            file.write(bytes(1 << 20))
            file.flush()
