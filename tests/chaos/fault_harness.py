"""Cycles of work against a real server while faults strike: what was acknowledged must hold, once, and nothing stay.

Used by `tests/chaos` (short) and `benchmarks.chaos` (a thousand cycles). Each cycle makes a sandbox, runs commands that each
write one line, checks the lines, deletes the sandbox; beside it an environment is made, stepped and closed. Callers retry
lost calls with the same keys and nothing else. A box or an environment that the service says it lost ends its cycle as
`interrupted`, with the service's own words; silence, a wrong answer or a second execution counts against it.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import grpc
import psutil
from faulty_link import FaultyLink

from rock_env.client.retry import rock_error
from rock_env.errors import FailedPrecondition, InfraError, NotFound, RockError, Unavailable
from rock_env.proto.v1 import admin_pb2, admin_pb2_grpc, env_pb2, env_pb2_grpc, sandbox_pb2, sandbox_pb2_grpc
from rock_env.wire.channel import CLIENT_OPTIONS

T = TypeVar("T")

TOYS = Path(__file__).parents[1] / "contract" / "toy_envs.py"
EXECS = STEPS = 3
CALL_S = 8.0
"""After so long a caller takes its connection for dead and sends the call again."""
PATIENCE_S = 90.0
"""A service that does not answer for so long failed the harness."""
BREATH_S = 0.5
"""A caller that was refused waits so long: a full disk must not use up all cycles."""
RETRY_S = 75.0
"""The service tries again once a minute to end what a fault kept it from ending."""
ENDING_S = 20.0
"""What is left of a box on the machine longer than that, with its server gone, was leaked."""
DISK_BYTES = 64 << 20
WRONG_CLOCK = """
import time
real = time.time
time.time = lambda: real() + float(open({offset!r}).read() or 0)
"""
"""Run in the server before all else: nobody may set the machine's clock for a test."""
TEMPORARY = (Unavailable,)


@dataclass
class Report:
    """What happened; `lost`, `doubled`, `leaked` and `wrong` must be empty."""

    cycles: int = 0
    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    leaked: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    interrupted: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0


class Node:
    """A server with its state folder, restarted as often as it is killed."""

    def __init__(self, folder: Path, options: tuple[str, ...] = ()) -> None:
        self.folder = folder
        self.state = folder / "state"
        self.socket = folder / "server"
        self.clock = folder / "clock"
        self.log = folder / "log"
        self._options = options
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Start the server and wait until it listens."""
        self.clock.write_text("0")
        site = self.folder / "site"
        site.mkdir(exist_ok=True)
        (site / "sitecustomize.py").write_text(WRONG_CLOCK.format(offset=str(self.clock)))
        path = os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])])
        environment = {**os.environ, "TMPDIR": str(self.folder), "PYTHONPATH": path}
        with self.log.open("a") as log:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "rock_env.server",
                    f"--listen=unix://{self.socket}",
                    f"--state={self.state}",
                    f"--env={TOYS}:TOY",
                    "--workers=1",
                    *self._options,
                ],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=environment,
            )
        assert self.process.stdout is not None
        if not self.process.stdout.readline():
            raise AssertionError(f"the server did not start:\n{self.log.read_text()[-2000:]}")

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.communicate()

    def end(self) -> None:
        """Leave no server behind, however the test ended."""
        if self.process is not None and self.process.poll() is None:
            self.kill()

    def stop(self) -> int:
        assert self.process is not None
        self.process.terminate()
        self.process.communicate()
        return self.process.returncode


@contextmanager
def small_disk(state: Path) -> Iterator[bool]:
    """Give `state` a small disk of its own where we may mount one; yield whether it has."""
    state.mkdir()
    mounted = (
        os.geteuid() == 0
        and subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "rock-chaos", str(state)], check=False
        ).returncode
        == 0
    )
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", "--lazy", str(state)], check=True)


class Caller:
    """Calls the service as a careful client does: the same key until there is an answer."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.boxes: Any = sandbox_pb2_grpc.SandboxServiceStub(channel)
        self.envs: Any = env_pb2_grpc.EnvServiceStub(channel)
        self.admin: Any = admin_pb2_grpc.AdminServiceStub(channel)

    async def ask(self, call: Callable[[], Awaitable[T]]) -> T:
        """Repeat `call` until the service answers it, well or badly."""
        end = time.monotonic() + PATIENCE_S
        while True:
            try:
                return await call()
            except grpc.aio.AioRpcError as failure:
                error, answered = rock_error(failure, "the server")
                if (answered and not isinstance(error, TEMPORARY)) or time.monotonic() > end:
                    raise error from failure
            await asyncio.sleep(0.05)

    async def exec(self, box: str, script: str, key: str) -> tuple[bytes, sandbox_pb2.ExecExit]:
        """Run a script to its end under a key; after a lost connection its output is read again from the start."""

        async def once() -> tuple[bytes, sandbox_pb2.ExecExit]:
            start = sandbox_pb2.ExecStart(sandbox_id=box, argv=["/bin/sh", "-c", script], idempotency_key=key)
            call = self.boxes.Exec(timeout=CALL_S)
            await call.write(sandbox_pb2.ExecRequest(start=start))
            await call.done_writing()
            output = bytearray()
            async for event in call:
                if event.HasField("stdout"):
                    output += event.stdout.data
                elif event.HasField("exit"):
                    return bytes(output), event.exit
            raise await _failure(call)

        return await self.ask(once)


async def _failure(call: Any) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(
        grpc.StatusCode.UNAVAILABLE if await call.code() is grpc.StatusCode.OK else await call.code(),
        await call.initial_metadata(),
        await call.trailing_metadata(),
        details=await call.details(),
    )


class Harness:
    """Runs `cycles` cycles, `width` at a time, while `faults` strike one after another, `pause_s` apart."""

    def __init__(
        self, folder: Path, *, image: str = "", seed: int = 0, options: tuple[str, ...] = ()
    ) -> None:
        self.report = Report()
        self.node = Node(folder, options)
        self._image = image
        self._random = random.Random(seed)
        self._live: set[str] = set()
        self._made: set[str] = set()
        self._seen: set[tuple[int, float]] = set()
        """Every process that held a box, with the time it was born."""
        self._disk = False

    async def run(self, cycles: int, *, width: int, pause_s: float) -> Report:
        """Return what happened."""
        began = time.monotonic()
        with ExitStack() as stack:
            self._disk = stack.enter_context(small_disk(self.node.state))
            stack.callback(self.node.end)
            await asyncio.to_thread(self.node.start)
            link = FaultyLink(self.node.folder / "link", self.node.socket)
            async with (
                link,
                grpc.aio.insecure_channel(f"unix:{link.path}", options=CLIENT_OPTIONS) as channel,
            ):
                caller = Caller(channel)
                numbers = iter(range(cycles))
                over = asyncio.Event()
                async with asyncio.TaskGroup() as faults:
                    faults.create_task(self._strike(link, pause_s, over))
                    try:
                        async with asyncio.TaskGroup() as group:
                            for _ in range(width):
                                group.create_task(self._work(caller, numbers))
                    finally:
                        over.set()  # a fault that has struck is mended first: the server runs, the disk has room
                await self._census(caller)
            assert await asyncio.to_thread(self.node.stop) == 0, self.node.log.read_text()[-2000:]
            self.report.leaked += await self._leftovers()
        self.report.seconds = time.monotonic() - began
        return self.report

    # -- the work

    async def _work(self, caller: Caller, numbers: Iterator[int]) -> None:
        for number in numbers:
            for part in (self._box_cycle, self._env_cycle):
                try:
                    await part(caller, number)
                except (NotFound, FailedPrecondition, InfraError) as error:
                    self.report.interrupted[_kind(error)] += 1
                    await asyncio.sleep(BREATH_S)
            self.report.cycles += 1

    async def _box_cycle(self, caller: Caller, number: int) -> None:
        request = sandbox_pb2.CreateSandboxRequest(
            idempotency_key=f"chaos-{number}", spec=sandbox_pb2.SandboxSpec(image=self._image)
        )
        request.lease.FromSeconds(600)
        info = await caller.ask(lambda: caller.boxes.Create(request, timeout=CALL_S))
        self._live.add(info.id)
        self._made.add(info.id)
        if not self._image and (pid := _holder(self.node.state, info.id)):
            self._seen.add(pid)
        try:
            acknowledged = []
            for turn in range(EXECS):
                line = f"{number}-{turn}"
                output, end = await caller.exec(
                    info.id, f"echo {line} >> log; echo did {line}", f"exec-{line}"
                )
                _must_have_run(end)
                if output != f"did {line}\n".encode():
                    self.report.wrong.append(f"{info.id} {line}: answered {output!r}")
                acknowledged.append(line)
            output, end = await caller.exec(info.id, "cat log", f"read-{number}")
            _must_have_run(end)
            lines = Counter(output.decode().split())
            self.report.lost += [f"{info.id} {line}" for line in acknowledged if not lines[line]]
            self.report.doubled += [f"{info.id} {line} {count}" for line, count in lines.items() if count > 1]
        finally:
            self._live.discard(info.id)
            gone = await self._delete(caller, info.id)
            if gone.state != sandbox_pb2.SANDBOX_STATE_DELETED:
                self.report.leaked.append(f"{info.id} is {gone.state} after Delete")

    async def _delete(self, caller: Caller, sandbox: str) -> sandbox_pb2.SandboxInfo:
        """Delete until it is done: while the disk is full it is refused, and says so."""
        end = time.monotonic() + PATIENCE_S
        request = sandbox_pb2.DeleteSandboxRequest(id=sandbox)
        while True:
            try:
                return await caller.ask(lambda: caller.boxes.Delete(request, timeout=CALL_S))
            except InfraError as error:
                self.report.interrupted[_kind(error)] += 1
                if time.monotonic() > end:
                    raise
            await asyncio.sleep(0.2)

    async def _env_cycle(self, caller: Caller, number: int) -> None:
        make = env_pb2.MakeRequest(env="toy", params_json="{}", idempotency_key=f"env-{number}")
        made = await caller.ask(lambda: caller.envs.Make(make, timeout=CALL_S))
        reset = env_pb2.ResetRequest(
            env_id=made.env_id, idempotency_key=f"reset-{number}", sequence=1, task_id="train/0", seed=number
        )
        await caller.ask(lambda: caller.envs.Reset(reset, timeout=CALL_S))
        for turn in range(STEPS):
            step = env_pb2.StepRequest(
                env_id=made.env_id, idempotency_key=f"s-{number}-{turn}", sequence=turn + 2, action="go"
            )
            reply = await caller.ask(lambda step=step: caller.envs.Step(step, timeout=CALL_S))
            counted = int(reply.observation.split(":")[0])
            if counted != turn + 1:
                where = self.report.doubled if counted > turn + 1 else self.report.lost
                where.append(f"{made.env_id} step {turn + 1} counted {counted}")
        await caller.ask(lambda: caller.envs.Close(env_pb2.CloseRequest(env_id=made.env_id), timeout=CALL_S))

    # -- the faults

    async def _strike(self, link: FaultyLink, pause_s: float, over: asyncio.Event) -> None:
        faults: dict[str, Callable[[], Awaitable[None]]] = {
            "server killed": self._kill_server,
            "guest killed": self._kill_guest,
            "connections cut": lambda: _now(link.cut),
            "connections half open": lambda: link.stall(2.0),
            "clock set": lambda: _now(self._set_clock),
        }
        if self._disk:
            faults["disk full"] = self._fill_disk
        while True:
            for name, fault in self._random.sample(sorted(faults.items()), len(faults)):
                with suppress(TimeoutError):
                    await asyncio.wait_for(over.wait(), pause_s * (0.5 + self._random.random()))
                    return
                await fault()
                self.report.faults[name] += 1

    async def _kill_server(self) -> None:
        await asyncio.to_thread(self.node.kill)
        await asyncio.to_thread(self.node.start)

    async def _kill_guest(self) -> None:
        """Kill what holds one box, whichever it is: its first process, or its container."""
        if self._live:
            sandbox = self._random.choice(sorted(self._live))
            kill = _kill_container if self._image else _kill_process
            await asyncio.to_thread(kill, self.node.state, sandbox)

    async def _fill_disk(self) -> None:
        filler = self.node.state / "filler"
        with suppress(OSError), filler.open("wb") as file:
            while True:
                file.write(bytes(1 << 20))
                file.flush()
        await asyncio.sleep(1.0)
        filler.unlink()

    def _set_clock(self) -> None:
        """Set the server's wall clock forward or back by hours."""
        hours = self._random.choice((-30, -2, 2, 30))
        self.node.clock.write_text(str(hours * 3600))

    # -- what is left

    async def _census(self, caller: Caller) -> None:
        """Ask the service what is left on its node, in its own words."""
        end = time.monotonic() + RETRY_S
        while True:
            left = await caller.ask(
                lambda: caller.boxes.List(sandbox_pb2.ListSandboxesRequest(), timeout=CALL_S)
            )
            if not left.sandboxes or time.monotonic() > end:
                break
            await asyncio.sleep(1.0)
        self.report.leaked += [f"sandbox {info.id} in the list" for info in left.sandboxes]
        census = await caller.ask(lambda: caller.admin.Census(admin_pb2.CensusRequest(), timeout=CALL_S))
        for backend in census.backends:
            assert not backend.error, backend
            found = {**backend.orphans, **backend.ghosts}
            self.report.leaked += [f"{backend.backend} {box}: {what}" for box, what in found.items()]

    async def _leftovers(self) -> list[str]:
        """Look at the machine itself, with the server gone; what was killed may take a while to end."""
        end = time.monotonic() + ENDING_S
        while True:
            found = await asyncio.to_thread(self._left)
            if not found or time.monotonic() > end:
                return found
            await asyncio.sleep(0.2)

    def _left(self) -> list[str]:
        found = [f"folder {path}" for path in self.node.state.glob("*/boxes/*")]
        mark = str(self.node.state)
        living = [it.info for it in psutil.process_iter(["pid", "cmdline"])]
        found += [f"process {it['pid']} {it['cmdline'][:6]}" for it in living if mark in str(it["cmdline"])]
        found += [f"process {pid}" for pid in self._seen if _is_alive(*pid)]
        mounts = Path("/proc/self/mounts").read_text().splitlines()
        found += [f"mount {line}" for line in mounts if f" {mark}/" in line]
        for folder, groups, _ in os.walk("/sys/fs/cgroup"):  # other tests' groups vanish meanwhile
            found += [f"cgroup {folder}/{name}" for name in groups if name in self._made]
        if self._image:
            listed = _docker(
                "ps", "--all", "--format", "{{.ID}} {{.Names}}", "--filter", "label=rock.sandbox"
            )
            found += [f"container {line}" for line in listed if any(b in line for b in self._made)]
        return found


def _must_have_run(end: sandbox_pb2.ExecExit) -> None:
    if end.infra_error:
        raise InfraError(end.infra_error)
    assert end.exit_code == 0, end


def _kind(error: RockError) -> str:
    """Return an error's class and words, less the ids in them."""
    words = (word for word in error.message.split() if not any(mark in word for mark in ("sb-", "env-", "/")))
    return f"{type(error).__name__}: {' '.join(itertools.islice(words, 12))}"


def _holder(state: Path, sandbox: str) -> tuple[int, float] | None:
    """Return the first process of a process sandbox and its birth, while it lives."""
    with suppress(OSError, ValueError, psutil.NoSuchProcess):
        pid = int((state / "process" / "boxes" / sandbox / "process").read_text().split()[0])
        return pid, psutil.Process(pid).create_time()
    return None


def _is_alive(pid: int, born: float) -> bool:
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        return process.create_time() == born and process.status() != psutil.STATUS_ZOMBIE
    return False


def _kill_process(state: Path, sandbox: str) -> None:
    if found := _holder(state, sandbox):
        with suppress(ProcessLookupError):
            os.kill(found[0], signal.SIGKILL)


def _kill_container(_: Path, sandbox: str) -> None:
    for container in _docker("ps", "-q", "--filter", f"label=rock.sandbox={sandbox}"):
        subprocess.run(["docker", "kill", container], capture_output=True, check=False)


def _docker(*words: str) -> list[str]:
    return subprocess.run(["docker", *words], capture_output=True, check=True, text=True).stdout.split("\n")[
        :-1
    ]


async def _now(act: Callable[[], None]) -> None:
    act()
