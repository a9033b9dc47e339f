"""What runs in a sandbox as its caller sees it: input, output as it comes, signals, and the truth about its end.

Made by `AsyncSandbox.start`, `AsyncSandbox.pty` and `RemoteShell.start`. A lost connection is taken up again where it
broke, by the command's key and the offsets of its output, so nothing runs twice and nothing is seen twice. Leaving the
block ends a command that still runs.
"""

from __future__ import annotations

import asyncio
import signal as signals
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, suppress
from types import TracebackType
from typing import Any, Protocol, Self

import grpc
from opentelemetry.trace import SpanKind

from rock_env.client.retry import Backoff
from rock_env.client.sandbox.calls import SandboxCalls
from rock_env.errors import FailedPrecondition, InvalidArgument, RockError, Unavailable
from rock_env.proto.v1 import sandbox_pb2 as pb
from rock_env.sandbox import CommandEnd, ExecResult, OutputChunk
from rock_env.telemetry import tracing
from rock_env.wire.sandboxes import command_end

__all__ = ["CommandStream", "RemoteCommand", "Stream", "signal_number"]

KEPT_INPUT_BYTES = 16 << 20
"""Input kept to be sent again on a new connection; a command that was sent more cannot be taken up while it reads."""
_PIECE_BYTES = 1 << 20
_SIGNALS = range(1, 65)
_HANG_UP_S = 1.0
"""How long a call may take to end behind its command's end."""
_KILL_S = 5.0
"""How long the end of a command that is killed may take, so that it does not outlive its block unseen."""


def signal_number(number: int) -> int:
    """Return a signal's number. Raise `InvalidArgument` for what is none."""
    if number not in _SIGNALS:
        raise InvalidArgument(f"{number} is no signal: expected 1 to 64.")
    return int(number)


class Stream(Protocol):
    """How one kind of call speaks: its messages in both directions."""

    rpc: str
    key: str
    resumable: bool
    no_stdin: bool
    """Whether the first message says that no input follows."""

    def first(self, received: Mapping[str, int]) -> Any:
        """Return the first message; what was received before is not sent again, or can be told by its offset."""

    def stdin(self, data: bytes) -> Any:
        """Return the message that carries input."""

    def stdin_closed(self) -> Any:
        """Return the message that ends the input."""

    def signal(self, number: int) -> Any:
        """Return the message that carries a signal."""

    def name(self, kind: str) -> str:
        """Return the output stream that an event of this kind belongs to."""


class CommandStream:
    """A command of its own, by `Exec`."""

    rpc = "Exec"

    def __init__(self, start: pb.ExecStart) -> None:
        self.key = start.idempotency_key
        self.no_stdin = start.no_stdin
        self.resumable = bool(self.key)
        self._start = start

    def first(self, received: Mapping[str, int]) -> pb.ExecRequest:
        """Ask for the command, or for the rest of what it writes."""
        self._start.stdout_offset, self._start.stderr_offset = received["stdout"], received["stderr"]
        return pb.ExecRequest(start=self._start)

    def stdin(self, data: bytes) -> pb.ExecRequest:
        """Return the message that carries input."""
        return pb.ExecRequest(stdin=data)

    def stdin_closed(self) -> pb.ExecRequest:
        """Return the message that ends the input."""
        return pb.ExecRequest(stdin_closed=True)

    def signal(self, number: int) -> pb.ExecRequest:
        """Return the message that carries a signal."""
        return pb.ExecRequest(signal=number)

    def name(self, kind: str) -> str:
        """Return the output stream's name, which is the event's."""
        return kind


class RemoteCommand:
    """Something that runs. Use it as `async with`; read `output()` or `wait()`, not both at once."""

    ends_with_block = True

    def __init__(self, calls: SandboxCalls, stream: Stream, *, sandbox_id: str) -> None:
        self.key = stream.key
        self._calls = calls
        self._stream = stream
        self._sandbox_id = sandbox_id
        self._call: Any = None
        self._received = {"stdout": 0, "stderr": 0}
        self._input: list[bytes] | None = []
        self._input_bytes = 0
        self._input_closed = stream.no_stdin
        self._backoff = Backoff(calls.retry_for_s)
        self._end: CommandEnd | None = None
        self._lock = asyncio.Lock()
        self._span = tracing.NO_SPAN

    async def __aenter__(self) -> Self:
        self._span = tracing.open_span(
            f"rock.v1.SandboxService/{self._stream.rpc}",
            kind=SpanKind.CLIENT,
            sandbox_id=self._sandbox_id,
            exec_id=self.key,
        )
        async with self._lock:
            await self._open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._end is None and self.ends_with_block:
                await asyncio.shield(self._kill())
            elif self._end is not None:
                await self._hang_up()
        finally:
            self._call.cancel()
            self._span.end()

    async def _hang_up(self) -> None:
        """Let the call end as its command did: the server counts one that is cancelled as CANCELLED."""
        with suppress(TimeoutError, grpc.aio.AioRpcError, asyncio.InvalidStateError):
            async with asyncio.timeout(_HANG_UP_S):
                await self._call.done_writing()
                while await self._call.read() is not grpc.aio.EOF:
                    pass

    async def _kill(self) -> None:
        """End what still runs, and wait for its end: with a key it would outlive the call."""
        with suppress(RockError, TimeoutError):
            async with asyncio.timeout(_KILL_S):
                try:
                    await self._send(self._stream.signal(signals.SIGKILL))
                except Unavailable:
                    async with self._lock:
                        await self._open()
                    await self._send(self._stream.signal(signals.SIGKILL))
                async with aclosing(self.output()) as output:
                    async for _ in output:
                        pass

    async def write(self, data: bytes) -> None:
        """Send bytes to its standard input; waits while it does not read."""
        if self._input_closed:
            raise FailedPrecondition("the command's standard input was closed; nothing more can be written.")
        for at in range(0, len(data), _PIECE_BYTES):
            piece = data[at : at + _PIECE_BYTES]
            self._keep(piece)
            await self._send_input(self._stream.stdin(piece))

    async def close_stdin(self) -> None:
        """End its standard input. Safe to call twice."""
        if not self._input_closed:
            self._input_closed = True
            await self._send_input(self._stream.stdin_closed())

    async def signal(self, number: int) -> None:
        """Send a signal, 1 to 64, to its process group. Raise `Unavailable` where nobody knows if it arrived."""
        await self._send(self._stream.signal(signal_number(number)))

    async def output(self) -> AsyncGenerator[OutputChunk]:
        """Yield output as it comes, to the end of the command. Raise its call's `RockError`."""
        while self._end is None:
            event = await self._next()
            kind = event.WhichOneof("kind")
            if kind == "exit":
                self._end = command_end(event.exit)
                return
            name, chunk = self._stream.name(kind), getattr(event, kind)
            seen = max(0, self._received[name] - chunk.offset)  # of a call that cannot start at an offset
            if seen < len(chunk.data):
                self._received[name] = chunk.offset + len(chunk.data)
                yield OutputChunk(name, chunk.data[seen:], chunk.offset + seen)  # type: ignore[arg-type]  # one of the two

    async def wait(self) -> ExecResult:
        """Return how it ended, with the output that nobody read before. Raise its call's `RockError`."""
        kept = {"stdout": bytearray(), "stderr": bytearray()}
        async with aclosing(self.output()) as output:
            async for chunk in output:
                kept[chunk.stream] += chunk.data
        assert self._end is not None  # output() ends only then
        return self._end.with_output(bytes(kept["stdout"]), bytes(kept["stderr"]))

    # -- the connection

    async def _open(self) -> None:
        """Open the stream; under the same key that means: go on. All input is sent again, what arrived is skipped."""
        if self._call is not None:
            self._call.cancel()
        with tracing.within(self._span):
            self._call = self._calls.open(self._stream.rpc)
        with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):  # the next read says why
            await self._call.write(self._stream.first(self._received))
            for piece in self._input or ():
                await self._call.write(self._stream.stdin(piece))
            if self._input_closed and not self._stream.no_stdin:
                await self._call.write(self._stream.stdin_closed())

    async def _next(self) -> Any:
        while True:
            call = self._call
            try:
                event = await call.read()
                if event is not grpc.aio.EOF:
                    self._backoff.success()
                    return event
                error = Unavailable(
                    f"the ROCK server at {self._calls.address} ended a command's stream without its end."
                )
            except grpc.aio.AioRpcError as failure:
                cause = self._calls.error(failure)
                if not isinstance(cause, Unavailable) or not self._can_resume:
                    raise cause from failure.with_traceback(None)
                error = cause
            await self._backoff.failure(error)
            async with self._lock:
                if call is self._call:
                    await self._open()

    @property
    def _can_resume(self) -> bool:
        return self._stream.resumable and self._input is not None

    def _keep(self, piece: bytes) -> None:
        self._input_bytes += len(piece)
        if self._input_bytes > KEPT_INPUT_BYTES or not self._stream.resumable:
            self._input = None
        elif self._input is not None:
            self._input.append(piece)

    async def _send_input(self, request: Any) -> None:
        try:
            await self._send(request)
        except Unavailable:
            if not self._can_resume:
                raise
            # Whoever reads the output takes the stream up again, and then sends all of the input.

    async def _send(self, request: Any) -> None:
        """Write one message. Raise `Unavailable` where the connection broke."""
        if self._end is not None:
            return  # it ended by itself while the caller was writing
        async with self._lock:
            if self._call.done() and self._can_resume:
                await self._open()  # it broke before: this was not sent
            try:
                await self._call.write(request)
            except (grpc.aio.AioRpcError, asyncio.InvalidStateError) as failure:
                raise Unavailable(
                    "the connection broke while a command's input was written: whether it arrived is unknown."
                ) from failure
