"""Commands, background processes and sessions of the SandboxService, over gRPC.

It keeps no state: the core has the sandboxes, and what runs in one is kept by its guest. The id of a process or session
is `SANDBOX/NAME`, since its calls have nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from functools import partial
from typing import Any

from rock_env.errors import InvalidArgument
from rock_env.proto.v1 import sandbox_pb2 as pb
from rock_env.sandbox import Command, OutputChunk, Sandbox
from rock_env.server.calls import Act, Context
from rock_env.server.sandboxes.core import SandboxCore
from rock_env.wire.sandboxes import exit_message, of_one, process_message, seconds

__all__ = ["ExecService"]

_DEFAULT_EXEC_S = 60.0
_DEFAULT_OUTPUT_BYTES = 1 << 20
_ON_ITS_WAY_S = 0.25
"""How long a call stays open behind its command for a caller that has not said that it writes no more."""
_MAX_WAITING = 64
"""Commands of one Session call that wait for their turn; its caller is not read beyond."""


class ExecService:
    """The calls, by name in `acts`."""

    def __init__(self, core: SandboxCore) -> None:
        self._core = core
        self.acts: dict[str, Act] = {
            "Exec": self._exec,
            "StartProcess": self._start_process,
            "ProcessLogs": self._process_logs,
            "SignalProcess": self._signal_process,
            "ListProcesses": self._list_processes,
            "OpenSession": self._open_session,
            "Session": self._session,
            "CloseSession": self._close_session,
        }

    async def _exec(self, requests: AsyncIterator[pb.ExecRequest], context: Context) -> None:
        first = await anext(aiter(requests), None)
        if first is None or first.WhichOneof("kind") != "start":
            raise InvalidArgument("the first message of Exec must be `start`")
        start = first.start
        if (start.stdout_offset or start.stderr_offset) and not start.idempotency_key:
            raise InvalidArgument("offsets resume the command with an idempotency_key; this Exec has none")
        async with self._core.using(start.sandbox_id) as box:
            command = box.start(
                list(start.argv),
                env=dict(start.env),
                cwd=start.cwd or None,
                timeout_s=_timeout_s(start, _DEFAULT_EXEC_S),
                max_output_bytes=start.max_output_bytes or _DEFAULT_OUTPUT_BYTES,
                key=start.idempotency_key,
                stdout_offset=start.stdout_offset,
                stderr_offset=start.stderr_offset,
            )
            async with command, asyncio.TaskGroup() as group:
                if start.no_stdin:
                    command.close_stdin()
                incoming = _Incoming(requests)
                pump = group.create_task(_pump(incoming.messages(), command, start))
                await _stream(command, context)
                await incoming.end(pump)

    async def _start_process(self, request: pb.StartProcessRequest, _: Context) -> pb.StartProcessResponse:
        start = request.start
        async with self._core.using(start.sandbox_id) as box:
            name = await box.start_process(
                list(start.argv),
                env=dict(start.env),
                cwd=start.cwd or None,
                timeout_s=_timeout_s(start, None),
                log_bytes=start.max_output_bytes or _DEFAULT_OUTPUT_BYTES,
                key=start.idempotency_key,
            )
        return pb.StartProcessResponse(process_id=f"{start.sandbox_id}/{name}")

    async def _process_logs(self, request: pb.ProcessLogsRequest, context: Context) -> None:
        sandbox_id, name = _split(request.process_id, "process")
        async with self._core.using(sandbox_id) as box:
            command = box.process_logs(
                name,
                stdout_offset=request.stdout_offset,
                stderr_offset=request.stderr_offset,
                follow=request.follow,
            )
            async with command:
                await _stream(command, context)

    async def _signal_process(self, request: pb.SignalProcessRequest, _: Context) -> pb.SignalProcessResponse:
        sandbox_id, name = _split(request.process_id, "process")
        async with self._core.using(sandbox_id) as box:
            await box.signal_process(name, _signal(request.signal))
        return pb.SignalProcessResponse()

    async def _list_processes(self, request: pb.ListProcessesRequest, _: Context) -> pb.ListProcessesResponse:
        async with self._core.using(request.sandbox_id) as box:
            found = await box.processes()
        return pb.ListProcessesResponse(
            processes=[process_message(request.sandbox_id, process) for process in found]
        )

    async def _open_session(self, request: pb.OpenSessionRequest, _: Context) -> pb.OpenSessionResponse:
        size = request.terminal
        async with self._core.using(request.sandbox_id) as box:
            name = await box.open_session(
                list(request.argv),
                env=dict(request.env),
                cwd=request.cwd or None,
                terminal=(size.rows, size.columns) if request.HasField("terminal") else None,
                key=request.idempotency_key,
            )
        return pb.OpenSessionResponse(session_id=f"{request.sandbox_id}/{name}")

    async def _session(self, requests: AsyncIterator[pb.SessionInput], context: Context) -> None:
        first = await anext(aiter(requests), None)
        if first is None:
            raise InvalidArgument("Session needs at least one message, with session_id")
        sandbox_id, name = _split(first.session_id, "session")
        requests = of_one(first, requests, "session_id")
        async with self._core.using(sandbox_id) as box:
            if first.WhichOneof("kind") == "command":
                await _Turns(box, name).run(first, requests, context)
            else:
                async with box.session(name, offset=first.offset) as command, asyncio.TaskGroup() as group:
                    incoming = _Incoming(requests)
                    pump = group.create_task(_type(box, name, command, first, incoming.messages()))
                    await _show(command, context)
                    await incoming.end(pump)

    async def _close_session(self, request: pb.CloseSessionRequest, _: Context) -> pb.CloseSessionResponse:
        sandbox_id, name = _split(request.session_id, "session")
        async with self._core.using(sandbox_id) as box:
            await box.close_session(name)
        return pb.CloseSessionResponse()


class _Incoming:
    """The messages of a call whose command may end first.

    gRPC's client drops all that it has not read of a call where a message of its own meets the call's end, the command's
    end among it. So the call stays open a little after its command, for a caller that may still write.
    """

    def __init__(self, requests: AsyncIterator[Any]) -> None:
        self._requests = requests
        self._over = False

    async def messages(self) -> AsyncIterator[Any]:
        """Yield what comes before the command's end, and take what comes after it."""
        async for request in self._requests:
            if not self._over:
                yield request

    async def end(self, pump: asyncio.Task[None]) -> None:
        """Wait until the caller says that it writes no more, or hangs up, or for as long as a message is on its way."""
        self._over = True
        await asyncio.wait((pump,), timeout=_ON_ITS_WAY_S)
        pump.cancel()


class _Turns:
    """The commands of one Session call, one after the other, and signals to the one that runs."""

    def __init__(self, box: Sandbox, name: str) -> None:
        self._box = box
        self._name = name
        self._waiting: asyncio.Queue[pb.SessionInput | None] = asyncio.Queue(_MAX_WAITING)
        self._current: Command | None = None

    async def run(
        self, first: pb.SessionInput, requests: AsyncIterator[pb.SessionInput], context: Context
    ) -> None:
        self._waiting.put_nowait(first)
        async with asyncio.TaskGroup() as group:
            reading = group.create_task(self._read(requests))
            while (given := await self._waiting.get()) is not None:
                command = self._box.session_command(
                    self._name,
                    given.command,
                    timeout_s=_timeout_s(given, _DEFAULT_EXEC_S),
                    max_output_bytes=given.max_output_bytes or _DEFAULT_OUTPUT_BYTES,
                    key=given.idempotency_key,
                )
                async with command:
                    self._current = command
                    await _show(command, context)
                    self._current = None
            reading.cancel()

    async def _read(self, requests: AsyncIterator[pb.SessionInput]) -> None:
        async for request in requests:
            kind = request.WhichOneof("kind")
            if kind == "command":
                await self._waiting.put(request)
            elif kind == "signal":
                if self._current is not None:
                    self._current.kill(_signal(request.signal))
            else:
                raise InvalidArgument(f"a shell session takes command and signal, got {kind!r}")
        await self._waiting.put(None)


async def _type(
    box: Sandbox,
    name: str,
    command: Command,
    first: pb.SessionInput,
    requests: AsyncIterator[pb.SessionInput],
) -> None:
    """Pass on what the caller types, and what else happens to the terminal."""

    async def act(request: pb.SessionInput) -> None:
        kind = request.WhichOneof("kind")
        if kind == "data":
            command.write_stdin(request.data)
            await command.drain()
        elif kind == "resize":
            await box.resize_session(name, request.resize.rows, request.resize.columns)
        elif kind == "signal":
            command.kill(_signal(request.signal))
        elif kind == "command":
            raise InvalidArgument("a session with a terminal takes data; `command` is for one without")

    await act(first)
    async for request in requests:
        await act(request)


async def _stream(
    command: Command, context: Context, message: Any = pb.ExecEvent, stdout: str = "stdout"
) -> None:
    """Write what a command does, as messages of one type whose field for its output is called `stdout`."""
    async with aclosing(command.events()) as events:
        async for event in events:
            if isinstance(event, OutputChunk):
                chunk = pb.OutputChunk(offset=event.offset, data=event.data)
                await context.write(message(**{stdout if event.stream == "stdout" else "stderr": chunk}))
            else:
                await context.write(message(exit=exit_message(event)))


_show = partial(_stream, message=pb.SessionOutput, stdout="output")


async def _pump(requests: AsyncIterator[pb.ExecRequest], command: Command, start: pb.ExecStart) -> None:
    """Pass the caller's later messages on, no input behind `no_stdin`; when it sends no more, the command's input ends.

    Not that of a command with a key: its caller may be cut off and come back, and looks the same from here.
    """
    async for request in requests:
        kind = request.WhichOneof("kind")
        if kind == "stdin":
            if not start.no_stdin:
                command.write_stdin(request.stdin)
                await command.drain()
        elif kind == "signal" and 1 <= request.signal <= 64:
            command.kill(request.signal)
        elif kind == "stdin_closed":
            command.close_stdin()
        else:
            raise InvalidArgument(
                f"after `start`, Exec takes stdin, stdin_closed or a signal from 1 to 64, got {kind!r}"
            )
    if not start.idempotency_key:
        command.close_stdin()


def _timeout_s(message: Any, default: Any) -> Any:
    given = message.timeout.seconds or message.timeout.nanos
    return seconds(message.timeout, "timeout") if given else default


def _signal(number: int) -> int:
    if not 1 <= number <= 64:
        raise InvalidArgument(f"expected a signal from 1 to 64, got {number}")
    return number


def _split(full: str, what: str) -> tuple[str, str]:
    sandbox_id, slash, name = full.partition("/")
    if not (sandbox_id and slash and name):
        raise InvalidArgument(f"{full!r} is no id of a {what}; expected the one that was given, SANDBOX/NAME")
    return sandbox_id, name
