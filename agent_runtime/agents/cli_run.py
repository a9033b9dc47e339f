"""Run a CLI agent in a sandbox against the gateway, to its end or the end of its time, and leave nothing of it running.

It says how the agent's program ended and keeps the end of its output for people; neither ever becomes a grade: what an
agent did is for the verifier to say, and exit codes of agents do not tell. Budgets of turns and tokens are the
session's; here is the clock's.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import PurePosixPath
from time import perf_counter
from typing import Any, Protocol

from agent_runtime.agents.spec import AgentSpec, fill
from agent_runtime.agents.tunnel import BoxPython, Target, TunnelCommand, open_tunnel
from rock_env.backends.docker.bundle import BOX_TOOLS
from rock_env.errors import (
    FailedPrecondition,
    InfraError,
    InvalidArgument,
    RockError,
    SandboxLost,
    Unavailable,
)
from rock_env.sandbox import ExecResult

__all__ = [
    "AgentBox",
    "AgentEnd",
    "AgentRun",
    "Ending",
    "box_python",
    "run_agent",
]

_MARK = "ALE_AGENT_RUN"
"""A variable of the agent's and of all it starts, by which they are found, however far they detach themselves."""
_MOST_ARGUMENT = 120_000
"""Bytes of one argument; Linux takes 128 KiB (MAX_ARG_STRLEN)."""
_STEP_S = 120.0
_GRACE_S = 10.0
_TAIL_BYTES = 64 << 10
_OUTPUT_BYTES = 16 << 20
_PROBE = """
import json, os, sys
shelf = os.environ.get("ROCK_SHELF", "")
folders = [os.path.join(shelf, name) for name in sys.argv[1:]] if shelf else []
print(json.dumps({"shelf": shelf, "home": os.environ.get("HOME") or "/tmp", "workdir": os.getcwd(),
                  "missing": [name for name in folders if not os.path.exists(name)]}))
"""
_SWEEP = """
import os, sys
mark, killed = sys.argv[1].encode(), set()
while True:
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            try:
                with open("/proc/%s/environ" % name, "rb") as file:
                    if mark in file.read():
                        found.append(int(name))
            except OSError:
                continue
    for pid in found:
        try:
            os.kill(pid, 9)
            killed.add(pid)  # one takes a moment to be gone, and is seen again meanwhile
        except OSError:
            pass
    if not found:
        break
print(len(killed))
"""
"""Until a whole look finds none: what is killed between two looks can have started another."""

log = logging.getLogger(__name__)


class Ending(StrEnum):
    """How the agent's program ended. None of these says whether the task was solved."""

    EXITED = "exited"
    """By itself, with whatever code."""
    KILLED = "killed"
    """By a signal that was not ours."""
    OUT_OF_MEMORY = "out_of_memory"
    OUT_OF_TIME = "out_of_time"
    STOPPED = "stopped"
    """It was told to end, as where it asks for more than its session's budget has."""
    NOT_STARTED = "not_started"
    """Its program could not be run (exit code 126 or 127)."""


@dataclass(frozen=True, slots=True)
class AgentEnd:
    """The end of one run."""

    ending: Ending
    exit_code: int | None
    signal: int | None
    duration_s: float
    output: bytes
    """The last of what it wrote, both streams as they came: for people who look for a mistake."""
    leftovers: int
    """Processes of its own that it had left running, and that were killed."""


@dataclass(frozen=True, slots=True)
class AgentRun:
    """What to run."""

    prompt: str
    key: str
    """The session's; it is the agent's whole identity."""
    model: str = "policy"
    workdir: str = ""
    """Empty: where commands of the sandbox start."""
    time_limit_s: float = 600.0
    context_tokens: int = 32768
    output_tokens: int = 4096
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables beside those of the spec, which they win over."""


class RunningCommand(TunnelCommand, Protocol):
    """A running command of a sandbox that can be told of an end."""

    async def close_stdin(self) -> None: ...

    async def signal(self, number: int) -> None: ...

    async def wait(self) -> ExecResult: ...


class BoxFiles(Protocol):
    """Files of a sandbox."""

    async def write(self, path: str, content: bytes) -> Any: ...


class AgentBox(Protocol):
    """The sandbox, as `rock_env.client.AsyncSandbox`."""

    id: str

    @property
    def files(self) -> BoxFiles: ...

    async def exec(
        self, argv: Sequence[str], *, cwd: str | None = None, timeout_s: float = 60.0
    ) -> ExecResult: ...

    def start(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        timeout_s: float = 60.0,
        max_output_bytes: int = 1 << 20,
        resumable: bool = True,
        stdin: bool = True,
    ) -> RunningCommand: ...


def box_python(image: str) -> BoxPython:
    """Return how to start the Python that ROCK itself brings into a sandbox: of an image, or (empty) of processes.

    Another backend's boxes need one of the two: some `python3` with sockets, of any version from 3.9 on, or ROCK's own.
    """
    if not image:
        return ("python3", "-I", "-S")
    loader = (f"{BOX_TOOLS}/ld.so", "--library-path", f"{BOX_TOOLS}/lib")
    return (*loader, f"{BOX_TOOLS}/bin/python", "-I", "-S")


async def run_agent(
    box: AgentBox,
    spec: AgentSpec,
    run: AgentRun,
    *,
    gateway: Target,
    python: BoxPython = ("python3", "-I", "-S"),
    stop: asyncio.Event | None = None,
) -> AgentEnd:
    """Run the agent in `box`, where it reaches `gateway`, and say how it ended.

    It is ended when its time is up or `stop` is set. Raise `FailedPrecondition` where the sandbox has no such agent and
    `RockError` where the sandbox, not the agent, failed. Whatever happens, its processes are killed, but for one that
    cleared its variables, which ends with the sandbox.
    """
    mark = secrets.token_hex(8)
    values = await _values(box, spec, run, python)
    try:
        async with open_tunnel(box, gateway, python=python) as tunnel:
            values["base_url"] = tunnel.base_url
            for path, content in spec.files.items():
                await box.files.write(
                    str(PurePosixPath(values["home"], path)), fill(content, values).encode()
                )
            env = {name: fill(value, values) for name, value in spec.env.items()} | {**run.env}
            env[_MARK] = mark
            command = box.start(
                spec.argv(values),
                env=env,
                cwd=values["workdir"],
                timeout_s=run.time_limit_s,
                max_output_bytes=_OUTPUT_BYTES,
                stdin=spec.stdin == "prompt",
            )
            began_s = perf_counter()
            async with command:
                end, tail, stopped = await _watch(command, spec, run, tunnel.lost, stop)
    finally:
        leftovers = await asyncio.shield(_sweep(box, f"{_MARK}={mark}", python))
    ending = Ending.STOPPED if stopped and not end.timed_out else _ending(end)
    log.info(
        "agent ended: sandbox_id=%s agent=%s ending=%s leftovers=%d", box.id, spec.name, ending, leftovers
    )
    return AgentEnd(ending, end.exit_code, end.signal, perf_counter() - began_s, bytes(tail), leftovers)


async def _values(box: AgentBox, spec: AgentSpec, run: AgentRun, python: BoxPython) -> dict[str, str]:
    """Ask the sandbox what is where, and return the value of each placeholder but the gateway's address."""
    size = len(run.prompt.encode())
    if size > _MOST_ARGUMENT and spec.stdin != "prompt":
        raise InvalidArgument(
            f"a prompt of {size} bytes does not fit an argument ({_MOST_ARGUMENT}); {spec.name} takes it no other way. Put "
            "the text into a file of the sandbox and name that."
        )
    folders = [spec.folder, *([spec.install.node_folder] if spec.install.node else [])]
    said = await box.exec([*python, "-c", _PROBE, *folders], cwd=run.workdir or None, timeout_s=_STEP_S)
    if not said.ok:
        why = said.infra_error or said.stderr.decode(errors="replace")[-300:]
        raise InfraError(f"sandbox {box.id} cannot be asked where things are: {why}")
    place = json.loads(said.stdout)
    if not place["shelf"]:
        raise FailedPrecondition(
            "the ROCK server shows its sandboxes no agents: start it with --shelf FOLDER, where `ale agent install "
            f"{spec.name} --shelf FOLDER` has put it"
        )
    if place["missing"]:
        raise FailedPrecondition(
            f"the agent {spec.name} is not on the server's shelf, as {PurePosixPath(place['missing'][0]).name!r}: run "
            f"`ale agent install {spec.name}` on its machine, with the Python that trains"
        )
    return {
        "key": run.key,
        "model": run.model,
        "prompt": run.prompt,
        "workdir": run.workdir or place["workdir"],
        "home": place["home"],
        "root": f"{place['shelf']}/{spec.folder}",
        "context_tokens": str(run.context_tokens),
        "output_tokens": str(run.output_tokens),
    }


async def _watch(
    command: RunningCommand,
    spec: AgentSpec,
    run: AgentRun,
    lost: asyncio.Future[RockError],
    stop: asyncio.Event | None,
) -> tuple[ExecResult, bytearray, bool]:
    """Feed the command and read it to its end; return that, the end of its output, and whether it was told to stop.

    Raise what the tunnel was lost for: an agent without its gateway would only fail for reasons that are not its own.
    """
    tail = bytearray()

    async def read() -> ExecResult:
        async with aclosing(command.output()) as output:
            async for piece in output:
                tail.extend(piece.data)
                del tail[:-_TAIL_BYTES]
        return await command.wait()

    if spec.stdin == "prompt":
        await command.write(run.prompt.encode())
        await command.close_stdin()
    async with _task(read()) as reading, _task((stop or asyncio.Event()).wait()) as stopping:
        any_of: tuple[asyncio.Future[Any], ...] = (reading, stopping, lost)
        await asyncio.wait(any_of, return_when=asyncio.FIRST_COMPLETED)
        stopped = stopping.done() and not reading.done()
        if stopped:
            await _signal(command, 15)
            await asyncio.wait((reading,), timeout=_GRACE_S)
            if not reading.done():
                await _signal(command, 9)
        elif lost.done() and not reading.done():
            raise SandboxLost(f"an agent lost its way to the gateway: {lost.result()}")
        return await reading, tail, stopped


async def _signal(command: RunningCommand, number: int) -> None:
    """Send a signal. One that finds no connection any more says nothing: the command has just ended, or whoever reads it to
    its end will be told what broke."""
    with suppress(Unavailable):
        await command.signal(number)


@asynccontextmanager
async def _task(work: Any) -> AsyncIterator[asyncio.Task[Any]]:
    task = asyncio.ensure_future(work)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _ending(end: ExecResult) -> Ending:
    if end.infra_error:
        raise InfraError(f"the sandbox failed an agent: {end.infra_error}")
    if end.timed_out:
        return Ending.OUT_OF_TIME
    if end.oom_killed:
        return Ending.OUT_OF_MEMORY
    if end.signal is not None:
        return Ending.KILLED
    return Ending.NOT_STARTED if end.exit_code in (126, 127) else Ending.EXITED


async def _sweep(box: AgentBox, mark: str, python: BoxPython) -> int:
    """Kill every process in the sandbox that has the mark; return how many there were."""
    try:
        said = await box.exec([*python, "-c", _SWEEP, mark], timeout_s=_STEP_S)
    except RockError as error:  # the sandbox is gone, and they with it
        log.warning("agent's processes not looked for: sandbox_id=%s %s", box.id, error)
        return 0
    return int(said.stdout) if said.ok else 0
