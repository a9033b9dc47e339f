"""Sessions of one sandbox: a shell that keeps its state from command to command, and a program on a terminal.

Made by `AsyncSandbox.shell` and `AsyncSandbox.pty`. Both live in the sandbox until they are closed, whatever happens
to the connection; leaving their block closes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from rock_env.client.sandbox.calls import SandboxCalls
from rock_env.client.sandbox.exec import RemoteCommand
from rock_env.errors import InvalidArgument, NotFound, Unimplemented
from rock_env.proto.v1 import sandbox_pb2 as pb
from rock_env.sandbox import ExecResult
from rock_env.wire.sandboxes import duration

__all__ = ["RemoteShell", "RemoteTerminal"]


class _CommandStream:
    """One command of a shell session, by `Session`."""

    rpc = "Session"
    resumable = True
    no_stdin = False

    def __init__(
        self, session_id: str, command: str, *, timeout_s: float, max_output_bytes: int, key: str
    ) -> None:
        self.key = key
        self._first = pb.SessionInput(
            session_id=session_id,
            command=command,
            timeout=duration(timeout_s),
            max_output_bytes=max_output_bytes,
            idempotency_key=key,
        )

    def first(self, received: Mapping[str, int]) -> pb.SessionInput:
        return self._first  # its output always starts at the beginning

    def stdin(self, data: bytes) -> Any:
        raise Unimplemented(
            "a shell session's commands have no input of their own: write a file, or use a terminal."
        )

    def stdin_closed(self) -> Any:
        return self.stdin(b"")

    def signal(self, number: int) -> pb.SessionInput:
        return pb.SessionInput(signal=number)

    def name(self, kind: str) -> str:
        return "stdout" if kind == "output" else kind


class _TerminalStream:
    """A program on a terminal, by `Session`."""

    rpc = "Session"
    resumable = True
    no_stdin = False

    def __init__(self, session_id: str) -> None:
        self.key = session_id
        self._session_id = session_id

    def first(self, received: Mapping[str, int]) -> pb.SessionInput:
        return pb.SessionInput(session_id=self._session_id, offset=received["stdout"])

    def stdin(self, data: bytes) -> pb.SessionInput:
        return pb.SessionInput(data=data)

    def stdin_closed(self) -> pb.SessionInput:
        return pb.SessionInput(data=b"\x04")

    def signal(self, number: int) -> pb.SessionInput:
        return pb.SessionInput(signal=number)

    def name(self, kind: str) -> str:
        return "stdout"


class RemoteShell:
    """A POSIX shell in the sandbox: working folder, variables and functions survive from command to command."""

    def __init__(self, calls: SandboxCalls, session_id: str) -> None:
        self.id = session_id
        self._calls = calls

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def run(
        self, command: str, *, timeout_s: float = 60.0, max_output_bytes: int = 1 << 20
    ) -> ExecResult:
        """Run a line or a script, after those given before, and return its own output and exit code.

        After `timeout_s` what it runs is killed, and the shell lives on. A shell that ended by `exit` takes no more.
        """
        async with self.start(command, timeout_s=timeout_s, max_output_bytes=max_output_bytes) as running:
            return await running.wait()

    def start(
        self, command: str, *, timeout_s: float = 60.0, max_output_bytes: int = 1 << 20
    ) -> RemoteCommand:
        """Return a command of the shell to enter as `async with`: it then runs, with output and signals live."""
        stream = _CommandStream(
            self.id,
            command,
            timeout_s=timeout_s,
            max_output_bytes=max_output_bytes,
            key=self._calls.key(),
        )
        return RemoteCommand(self._calls, stream, sandbox_id=self.id.partition("/")[0])

    async def close(self) -> None:
        """End the shell and what runs in it. Safe to call twice."""
        await _close(self._calls, self.id)


class RemoteTerminal(RemoteCommand):
    """A program on a terminal. Enter it as `async with`; its output is all on `stdout`, as on any terminal."""

    ends_with_block = False

    def __init__(self, calls: SandboxCalls, session_id: str) -> None:
        super().__init__(calls, _TerminalStream(session_id), sandbox_id=session_id.partition("/")[0])
        self.id = session_id
        self._input = []  # keystrokes are never sent twice

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await super().__aexit__(kind, error, trace)
        await _close(self._calls, self.id)

    async def write(self, data: bytes) -> None:
        """Type. Raise `Unavailable` where nobody knows if it arrived: it is not typed again."""
        await self._send(self._stream.stdin(data))

    async def close_stdin(self) -> None:
        """Type Ctrl-D, on which most programs end."""
        await self._send(self._stream.stdin_closed())

    async def resize(self, rows: int, columns: int) -> None:
        """Tell the program the terminal's new size, in characters."""
        if rows < 1 or columns < 1:
            raise InvalidArgument(f"a terminal has at least one row and column, got {rows} and {columns}.")
        await self._send(pb.SessionInput(resize=pb.TerminalSize(rows=rows, columns=columns)))


async def _close(calls: SandboxCalls, session_id: str) -> None:
    with suppress(NotFound):
        request = pb.CloseSessionRequest(session_id=session_id)
        await calls.unary("CloseSession", request, sandbox_id=session_id.partition("/")[0])
