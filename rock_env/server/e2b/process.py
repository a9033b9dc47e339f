"""Commands of the E2B face: each is an Exec of ours that this process holds, so that it outlives its first listener.

Used by `server/e2b/envd`. E2B lets a client hang up, come back by process id and find the command running; a command
nobody listens to goes on and its output is dropped, as there. It ends with its box, its timeout, or this server.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import signal as signals
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from typing import Any, cast

import grpc

from rock_env.errors import DeadlineExceeded, InfraError, InvalidArgument, NotFound, RockError
from rock_env.proto.v1 import sandbox_pb2 as pb
from rock_env.server.rest.codec import rock_error

__all__ = ["Process", "Processes", "exec_start"]

_MAX_OUTPUT_BYTES = 256 << 20
_ENDLESS_S = 30 * 86400
"""What E2B calls no timeout."""
_BASH = ["/bin/bash", "-l", "-c"]
"""What the SDKs run every command with."""
_CHOOSE = '[ -x /bin/bash ] && exec /bin/bash -l -c "$1"; exec /bin/sh -l -c "$1"'
_ANY_SHELL = ["/bin/sh", "-c", _CHOOSE, "sh"]
"""The same, in images that may have no bash."""
_WAITING = 4
"""Messages that wait for a slow listener; then the command waits."""

Event = dict[str, Any]


class Process:
    """One command; `config` is what E2B's List tells of it."""

    def __init__(self, pid: int, sandbox_id: str, config: Mapping[str, Any], tag: str | None) -> None:
        self.pid = pid
        self.sandbox_id = sandbox_id
        self.config = config
        self.tag = tag
        self._call: Any = None
        self._listeners: set[asyncio.Queue[Event | RockError | None]] = set()

    async def begin(self, call: Any, start: pb.ExecStart) -> None:
        """Start the command on an Exec call."""
        self._call = call
        await call.write(pb.ExecRequest(start=start))

    async def send(self, request: pb.ExecRequest) -> None:
        """Pass input or a signal on. Raise `NotFound` for a command that has ended."""
        try:
            await self._call.write(request)
        except (asyncio.InvalidStateError, grpc.aio.AioRpcError) as error:
            raise NotFound(f"process {self.pid} has ended") from error

    async def run(self) -> None:
        """Read to the end and tell who listens."""
        last: Event | RockError | None = None
        try:
            while (event := await self._call.read()) is not grpc.aio.EOF:
                kind = event.WhichOneof("kind")
                if kind == "exit":
                    last = _end(event.exit)
                    break  # the call would stay open for further input
                data = base64.b64encode(getattr(event, kind).data).decode()
                await self._tell({"event": {"data": {kind: data}}})
            if last is None:
                last = InfraError("the command's stream ended before the command")
        except grpc.aio.AioRpcError as failure:
            last = rock_error(failure)
        finally:
            self._call.cancel()
            await self._tell(last)
            if isinstance(last, dict):
                await self._tell(None)

    async def _tell(self, event: Event | RockError | None) -> None:
        for listener in tuple(self._listeners):
            await listener.put(event)

    async def events(self, keepalive_s: float) -> AsyncIterator[Event]:
        """Yield the start, then what the command says until it ends. Raise `RockError`."""
        queue: asyncio.Queue[Event | RockError | None] = asyncio.Queue(_WAITING)
        self._listeners.add(queue)
        try:
            yield {"event": {"start": {"pid": self.pid}}}
            while True:
                try:
                    async with asyncio.timeout(keepalive_s):
                        event = await queue.get()
                except TimeoutError:
                    yield {"event": {"keepalive": {}}}
                    continue
                if event is None:
                    return
                if isinstance(event, RockError):
                    raise event
                yield event
        finally:
            self._listeners.discard(queue)
            while not queue.empty():  # lets go of whoever waits to put more
                queue.get_nowait()


class Processes:
    """All commands of the E2B face of one server. Enter it on the event loop; leaving ends them."""

    def __init__(self) -> None:
        self._running: dict[tuple[str, int], Process] = {}
        self._pids = itertools.count(1000)
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Processes:
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in tuple(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def new(self, sandbox_id: str, config: Mapping[str, Any], tag: str | None) -> Process:
        """Return a process that is yet to begin. Its id is ours: the box's own is not told."""
        return Process(next(self._pids), sandbox_id, config, tag)

    def keep(self, process: Process) -> None:
        """Run a process that has begun until it ends."""
        key = (process.sandbox_id, process.pid)
        self._running[key] = process

        async def run() -> None:
            try:
                await process.run()
            finally:
                self._running.pop(key, None)

        task = asyncio.get_running_loop().create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def find(self, sandbox_id: str, selector: Any) -> Process:
        """Return the running process that E2B's selector names. Raise `NotFound`."""
        selector = selector if isinstance(selector, dict) else {}
        pid, tag = selector.get("pid"), selector.get("tag")
        for process in self.of(sandbox_id):
            if (pid is not None and process.pid == pid) or (tag and process.tag == tag):
                return process
        raise NotFound(f"no process {pid if pid is not None else tag!r} runs in sandbox {sandbox_id!r}")

    def of(self, sandbox_id: str) -> list[Process]:
        """Return what runs in one box."""
        return [process for (box, _), process in self._running.items() if box == sandbox_id]


def exec_start(sandbox_id: str, config: Mapping[str, Any], timeout_s: float, *, stdin: bool) -> pb.ExecStart:
    """Return our Exec for E2B's process configuration. Raise `InvalidArgument`."""
    args, env = config.get("args", []), config.get("envs", {})
    argv = [config.get("cmd"), *args] if isinstance(args, list) else []
    if not argv or not isinstance(env, dict) or not all(isinstance(it, str) for it in (*argv, *env.values())):
        raise InvalidArgument("process needs cmd, args and envs of text")
    if argv[:3] == _BASH:
        argv = [*_ANY_SHELL, *argv[3:]]
    start = pb.ExecStart(
        sandbox_id=sandbox_id,
        argv=cast("list[str]", argv),
        env=env,
        cwd=config.get("cwd") or "",
        max_output_bytes=_MAX_OUTPUT_BYTES,
        no_stdin=not stdin,
    )
    start.timeout.FromMilliseconds(round(min(timeout_s or _ENDLESS_S, _ENDLESS_S) * 1000))
    return start


def _end(exit_: pb.ExecExit) -> Event | RockError:
    if exit_.infra_error:
        return InfraError(exit_.infra_error)
    if exit_.timed_out:
        return DeadlineExceeded("the command took longer than its timeout and was killed")
    if exit_.truncated:
        return InfraError(f"the command wrote more than {_MAX_OUTPUT_BYTES} bytes; what was kept is not all")
    if exit_.HasField("signal"):
        name = str(exit_.signal)
        with suppress(ValueError):
            name = (signals.strsignal(exit_.signal) or name).lower()
        status, code = f"signal: {name}", -1
    else:
        status, code = f"exit status {exit_.exit_code}", exit_.exit_code
    end: dict[str, Any] = {"exitCode": code, "exited": code >= 0, "status": status}
    if code:
        end["error"] = status
    return {"event": {"end": end}}
