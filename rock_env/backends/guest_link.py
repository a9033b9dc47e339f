"""The host's end of one box: frames to and from the guest, running commands and file requests.

Used by `backends/process` only. Knows nothing of namespaces or work trees and never decides lifecycle; when the
guest is gone, every request in progress is told so and nothing waits for ever. The guest's bytes are untrusted.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import marshal
import os
import signal as signals
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

from rock_env.errors import InfraError, InvalidArgument, NotFound, RockError
from rock_env.guest import init as guest
from rock_env.sandbox import ExecResult

__all__ = ["Command", "CommandEnd", "FileEntry", "GuestLink", "OutputChunk"]

KILL_GRACE_S = 10.0
"""How long a killed command may take to be reported before the box counts as broken."""
_MAX_FRAME_BYTES = 2 << 20
_MAX_STDERR_BYTES = 4096


@dataclass(frozen=True, slots=True)
class OutputChunk:
    """A piece of a command's output, in order within its stream."""

    stream: Literal["stdout", "stderr"]
    data: bytes


@dataclass(frozen=True, slots=True)
class CommandEnd:
    """How a command ended; the fields mean what they mean in `ExecResult`."""

    exit_code: int | None
    signal: int | None
    duration_s: float
    timed_out: bool = False
    truncated: bool = False
    infra_error: str = ""


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One file of the box; `path` as asked for, or relative to the listed folder."""

    path: str
    size: int
    mode: int
    modified_at: float
    symlink_target: str


class _Reply:
    """A request that is answered once: the bytes of its DATA frames, or an error."""

    def __init__(self) -> None:
        self.blocks: list[bytes] = []
        self.done: asyncio.Future[list[bytes]] = asyncio.get_running_loop().create_future()

    def frame(self, kind: int, payload: bytes) -> None:
        if self.done.done():
            return
        if kind == guest.DATA:
            self.blocks.append(payload)
        elif kind == guest.REFUSED:
            self.done.set_exception(_refusal(payload))
        else:
            self.done.set_result(self.blocks)

    def lost(self, reason: str) -> None:
        if not self.done.done():
            self.done.set_exception(InfraError(reason))


class Command:
    """One running command. Leaving the `async with` kills its process group, so nothing outlives its caller."""

    def __init__(self, link: GuestLink, request: int, timeout_s: float) -> None:
        self._link = link
        self._request = request
        self._started = time.monotonic()
        self._deadline = self._started + timeout_s
        self._queue: asyncio.Queue[OutputChunk | CommandEnd] = asyncio.Queue()
        self._ended = False

    async def __aenter__(self) -> Command:
        return self

    async def __aexit__(self, *_: object) -> None:
        if not self._ended:
            self.kill(signals.SIGKILL)
        self._link.forget(self._request)

    def write_stdin(self, data: bytes) -> None:
        """Send bytes to the command's standard input."""
        for start in range(0, len(data), _MAX_FRAME_BYTES):
            self._link.send(guest.STDIN, self._request, data[start : start + _MAX_FRAME_BYTES])

    def close_stdin(self) -> None:
        """End the command's standard input."""
        self._link.send(guest.STDIN_EOF, self._request)

    def kill(self, number: int) -> None:
        """Send a signal to the command's process group."""
        self._link.send(guest.KILL, self._request, bytes([number]))

    async def events(self) -> AsyncIterator[OutputChunk | CommandEnd]:
        """Yield output as it comes and, last, the one `CommandEnd`. At the deadline the group is killed."""
        timed_out = False
        while True:
            try:
                async with asyncio.timeout_at(self._loop_deadline()):
                    event = await self._queue.get()
            except TimeoutError:
                if timed_out:
                    reason = (
                        f"the sandbox did not confirm within {KILL_GRACE_S:g} s that a command was killed"
                    )
                    self._link.fail(reason)
                    event = self._end(infra_error=reason, timed_out=True)
                else:
                    timed_out = True
                    self._deadline = time.monotonic() + KILL_GRACE_S
                    self.kill(signals.SIGKILL)
                    continue
            if isinstance(event, CommandEnd):
                self._ended = True
                # A command that ended by itself while the kill was on its way did not time out.
                killed = timed_out and event.signal == signals.SIGKILL
                yield CommandEnd(
                    event.exit_code,
                    event.signal,
                    event.duration_s,
                    timed_out=killed or event.timed_out,
                    truncated=event.truncated,
                    infra_error=event.infra_error,
                )
                return
            yield event

    async def result(self) -> ExecResult:
        """Wait for the end and return everything at once."""
        output = {"stdout": bytearray(), "stderr": bytearray()}
        async for event in self.events():
            if isinstance(event, OutputChunk):
                output[event.stream] += event.data
            else:
                end = event
        return ExecResult(
            exit_code=end.exit_code,
            signal=end.signal,
            stdout=bytes(output["stdout"]),
            stderr=bytes(output["stderr"]),
            duration_s=end.duration_s,
            timed_out=end.timed_out,
            truncated=end.truncated,
            infra_error=end.infra_error,
        )

    def frame(self, kind: int, payload: bytes) -> None:
        if kind == guest.STDOUT:
            self._queue.put_nowait(OutputChunk("stdout", payload))
        elif kind == guest.STDERR:
            self._queue.put_nowait(OutputChunk("stderr", payload))
        elif kind == guest.EXIT:
            by_signal, value, dropped = guest.EXITED.unpack(payload)
            self._queue.put_nowait(
                CommandEnd(
                    None if by_signal else value,
                    value if by_signal else None,
                    time.monotonic() - self._started,
                    truncated=bool(dropped),
                )
            )
        else:
            self.lost(f"the sandbox could not start the command: {_refusal(payload)}")

    def lost(self, reason: str) -> None:
        self._queue.put_nowait(self._end(infra_error=reason))

    def _end(self, *, infra_error: str, timed_out: bool = False) -> CommandEnd:
        seconds = time.monotonic() - self._started
        return CommandEnd(None, None, seconds, timed_out=timed_out, infra_error=infra_error)

    def _loop_deadline(self) -> float:
        return asyncio.get_running_loop().time() + max(0.0, self._deadline - time.monotonic())


class GuestLink(asyncio.SubprocessProtocol):
    """The process that holds a box, seen from the host's event loop."""

    def __init__(self) -> None:
        self._transport: asyncio.SubprocessTransport | None = None
        self._stdin: asyncio.WriteTransport | None = None
        self._buffer = bytearray()
        self._stderr = bytearray()
        self._requests = itertools.count(1)
        self._sinks: dict[int, _Reply | Command] = {}
        self._exited: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._drained: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """Why the box can no longer be used, from then on."""

    @classmethod
    async def open(cls, argv: Sequence[str], *, cwd: str, config: Mapping[str, object]) -> GuestLink:
        """Start `argv`, which runs the guest, and configure it. Raise `InfraError` with what it said instead."""
        loop = asyncio.get_running_loop()
        try:
            _, link = await loop.subprocess_exec(cls, *argv, cwd=cwd, env={}, start_new_session=True)
        except OSError as error:
            raise InfraError(f"cannot start a sandbox with {argv[0]!r}: {error}") from error
        try:
            await link.ask(guest.CONFIG, marshal.dumps(dict(config), 2))
        except BaseException:
            await link.close()
            raise
        return link

    @property
    def failure(self) -> str:
        """Return why the box can no longer be used; empty while it can."""
        return self.lost.result() if self.lost.done() else ""

    @property
    def pid(self) -> int:
        """Return the process id, on the host, of the program that holds the box."""
        assert self._transport is not None
        return self._transport.get_pid()

    def send(self, kind: int, request: int, payload: bytes = b"") -> None:
        """Write one frame; to a box that is gone, nothing."""
        if self._stdin is not None and not self._stdin.is_closing():
            self._stdin.write(guest.HEADER.pack(kind, request, len(payload)) + payload)

    async def ask(self, kind: int, payload: bytes = b"") -> list[bytes]:
        """Send a request and return the blocks of its answer. Raise what the guest refused it with."""
        if self.failure:
            raise InfraError(self.failure)
        request, reply = next(self._requests), _Reply()
        self._sinks[request] = reply
        try:
            self.send(kind, request, payload)
            return await reply.done
        finally:
            self.forget(request)

    def run(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: str,
        timeout_s: float,
        max_output_bytes: int,
    ) -> Command:
        """Start a command; each of its two output streams is cut after `max_output_bytes`."""
        if self.failure:
            raise InfraError(self.failure)
        command = Command(self, next(self._requests), timeout_s)
        self._sinks[command._request] = command
        what = {"argv": list(argv), "env": dict(env), "cwd": cwd, "limit": max_output_bytes}
        self.send(guest.EXEC, command._request, marshal.dumps(what, 2))
        return command

    def forget(self, request: int) -> None:
        self._sinks.pop(request, None)

    def fail(self, reason: str) -> None:
        """Give the box up: kill what holds it and end every request in progress with `reason`."""
        self._lose(reason)
        if not self._exited.done():
            self._kill()
        for sink in tuple(self._sinks.values()):
            sink.lost(self.failure)

    def _lose(self, reason: str) -> None:
        if not self.lost.done():
            self.lost.set_result(reason)

    async def close(self) -> None:
        """Hang up, on which the guest ends everything in the box and then itself; kill it if it does not."""
        self._lose("the sandbox was closed")
        if self._transport is None:
            return
        if self._stdin is not None:
            self._stdin.close()
        try:
            if not await _within(KILL_GRACE_S, self._exited):
                self._kill()
                await self._exited
            # The guest's ends of the pipes close when it dies, also where only its parent had to be killed.
            await _within(KILL_GRACE_S, self._drained)
        finally:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.SubprocessTransport", transport)
        self._stdin = cast("asyncio.WriteTransport", self._transport.get_pipe_transport(0))

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 2:
            self._stderr = (self._stderr + data)[-_MAX_STDERR_BYTES:]
            return
        self._buffer += data
        position = 0
        while len(self._buffer) - position >= guest.HEADER.size:
            kind, request, size = guest.HEADER.unpack_from(self._buffer, position)
            if size > _MAX_FRAME_BYTES:
                self.fail(f"the sandbox sent a frame of {size} bytes; at most {_MAX_FRAME_BYTES} are valid")
                return
            start = position + guest.HEADER.size
            if len(self._buffer) < start + size:
                break
            sink = self._sinks.get(request)
            if sink is not None:
                sink.frame(kind, bytes(self._buffer[start : start + size]))
            position = start + size
        del self._buffer[:position]

    def process_exited(self) -> None:
        self._exited.set_result(None)
        if self._stdin is not None:
            self._stdin.close()  # so that a guest whose parent alone was killed ends, too

    def _kill(self) -> None:
        """Kill the guest where it hangs. Under bubblewrap it is the child of the process that we know."""
        if self._transport is None:
            return
        pid = self._transport.get_pid()
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
                os.kill(int(child), signals.SIGKILL)
        self._transport.kill()

    def connection_lost(self, _: Exception | None) -> None:
        assert self._transport is not None
        self._drained.set_result(None)
        said = self._stderr.decode(errors="replace").strip()
        status = self._transport.get_returncode()
        self.fail(f"the sandbox ended with status {status}" + (f": {said}" if said else ""))


async def _within(seconds: float, future: asyncio.Future[None]) -> bool:
    await asyncio.wait([future], timeout=seconds)
    return future.done()


def _refusal(payload: bytes) -> RockError:
    kinds: dict[bytes, type[RockError]] = {guest.NOT_FOUND: NotFound, guest.INVALID: InvalidArgument}
    return kinds.get(payload[:1], InfraError)(payload[1:].decode(errors="replace"))
