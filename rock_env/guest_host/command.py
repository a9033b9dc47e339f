"""The host's end of one command: output in order and acknowledged, input as far as there is room, one end.

Made by `guest_host.link`. The guest enforces the timeout, which stands still while the box is paused. This side asks shortly
before whether the guest answers at all: the command of one that does not (it is frozen, or hangs) ends at its own limit, by
name. The guest's bytes are untrusted.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable
from typing import Literal, Protocol

from rock_env.errors import RockError
from rock_env.guest import protocol as guest
from rock_env.sandbox import CommandEnd, ExecResult, OutputChunk

__all__ = ["KILL_GRACE_S", "GuestCommand", "Wire", "command_end"]

KILL_GRACE_S = 10.0
"""How long after its timeout a command's end may take before the guest, which answers, is asked again."""
_LEAST_ANSWER_S = 1.0
"""What a guest has at least for its answer, also where a command's limit is shorter: a busy machine is no hung guest."""
_STREAMS: tuple[Literal["stdout"], Literal["stderr"]] = ("stdout", "stderr")


class Wire(Protocol):
    """What a command needs of its link."""

    def send(self, kind: int, request: int, payload: bytes | memoryview = b"") -> None: ...
    def forget(self, request: int) -> None: ...
    async def answers(self, within_s: float) -> bool: ...


class GuestCommand:
    """One running command, or one that is listened to; satisfies `rock_env.sandbox.Command`."""

    def __init__(
        self,
        wire: Wire,
        request: int,
        *,
        named: bool,
        timeout_s: float | None,
        offsets: tuple[int, int],
        resends: bool = True,
        window: int = guest.WINDOW_BYTES,
    ) -> None:
        """`resends`: of a command that is taken up again, input is written from its start, not from where it was."""
        self._wire = wire
        self._request = request
        self._loop = asyncio.get_running_loop()
        self._started = self._loop.time()
        self._timeout_s = timeout_s
        # Asked so early that its silence is known at the limit.
        self._ask_at = (
            None if timeout_s is None else self._started + max(timeout_s - KILL_GRACE_S, timeout_s / 2)
        )
        self._named = named
        self._window = window
        self._resends = resends
        self._begun = not named
        self._events: deque[OutputChunk | CommandEnd | RockError | None] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._over = False
        self._at = list(offsets)
        self._used = list(offsets)
        self._acked = list(offsets)
        self._pending: deque[memoryview] = deque()
        self._skip = self._sent = self._room = 0
        self._waiting_bytes = 0
        self._closing = self._closed = False
        self._drained: asyncio.Future[None] | None = None
        if not named:
            self._room = window

    async def __aenter__(self) -> GuestCommand:
        return self

    async def __aexit__(self, *_: object) -> None:
        if not self._over:
            self._wire.send(guest.DETACH, self._request)
        self._wire.forget(self._request)

    def write_stdin(self, data: bytes | memoryview) -> None:
        """Send bytes to its standard input. They wait here until there is room; see `drain`.

        Of a command that is taken up again, the bytes it has got already are skipped: write all of them again.
        """
        if data and self._room <= guest.ENDLESS:  # else nobody reads it any more
            self._pending.append(memoryview(data))
            self._waiting_bytes += len(data)
            self._pump()

    async def drain(self) -> None:
        """Wait until little of what was written still waits."""
        while self._waiting_bytes > self._window and not self._over:
            self._drained = self._drained or self._loop.create_future()
            await asyncio.shield(self._drained)

    async def feed(self, blocks: AsyncIterable[bytes | memoryview]) -> None:
        """Send all of its standard input, as far as there is room, and the end of it."""
        async for block in blocks:
            self.write_stdin(block)
            await self.drain()
        self.close_stdin()

    def close_stdin(self) -> None:
        """End its standard input."""
        self._closing = True
        self._pump()

    def kill(self, number: int) -> None:
        """Send a signal to its process group."""
        self._wire.send(guest.KILL, self._request, bytes([number]))

    async def events(self) -> AsyncGenerator[OutputChunk | CommandEnd]:
        """Yield output as it comes and, last, its end. A log that is not followed ends without one."""
        while True:
            while not self._events:
                await self._wait()
            event = self._events.popleft()
            if event is None:
                return
            if isinstance(event, RockError):
                raise event
            yield event
            if isinstance(event, CommandEnd):
                return
            self._use(event)

    async def result(self, most_bytes: int | None = None) -> ExecResult:
        """Wait for the end and return everything at once; of one that writes more than `most_bytes`, only that it did."""
        output: dict[str, list[bytes]] = {"stdout": [], "stderr": []}
        kept = 0
        end = CommandEnd(None, None, 0.0, infra_error="the log ended before the command")
        async for event in self.events():
            if isinstance(event, OutputChunk):
                output[event.stream].append(event.data)
                kept += len(event.data)
                if most_bytes is not None and kept > most_bytes:
                    return CommandEnd(
                        None, None, 0.0, infra_error=f"it wrote more than {most_bytes} bytes"
                    ).with_output(b"", b"")
            else:
                end = event
        return end.with_output(b"".join(output["stdout"]), b"".join(output["stderr"]))

    def frame(self, kind: int, payload: bytes | bytearray) -> None:
        if self._over:
            return
        if kind in (guest.STDOUT, guest.STDERR):
            index = kind - guest.STDOUT
            self._put(OutputChunk(_STREAMS[index], bytes(payload), self._at[index]))
            self._at[index] += len(payload)
            if self._at[index] - self._acked[index] > self._window + guest.MAX_FRAME_BYTES:
                raise guest.BadFrame("output that nobody had room for")
        elif kind == guest.CREDIT:
            taken = guest.COUNT.unpack(payload)[0]
            self._room = taken + self._window
            if taken >= guest.ENDLESS:  # nobody reads it any more
                self._pending.clear()
                self._waiting_bytes = 0
            self._pump()
        elif kind == guest.EXIT:
            self._finish(command_end(payload))
        elif kind == guest.BEGUN:
            _, received = guest.STARTED.unpack_from(payload)
            if self._resends:
                self._skip = received
            else:
                self._sent = received
            self._begun = True
            self._pump()
        elif kind == guest.GAP:
            index, offset = guest.PLACE.unpack(payload)
            if index < 2 and offset > self._at[index]:
                self._at[index] = self._used[index] = self._acked[index] = offset
        elif kind == guest.DONE:
            self._finish(None)

    def refused(self, error: RockError) -> None:
        """End with what the guest refused the request with."""
        if not self._named and error.code == "infra":  # it could not be started
            self.lost(f"the sandbox could not start the command: {error}")
        else:
            self._finish(error)

    def lost(self, reason: str) -> None:
        """End because the box did."""
        self._finish(CommandEnd(None, None, self._loop.time() - self._started, infra_error=str(reason)))

    def _finish(self, event: CommandEnd | RockError | None) -> None:
        if not self._over:
            self._over = True
            self._put(event)
            self._pending.clear()
            self._release()

    def _put(self, event: OutputChunk | CommandEnd | RockError | None) -> None:
        self._events.append(event)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def _wait(self) -> None:
        self._waiter = self._loop.create_future()
        if self._ask_at is None or self._timeout_s is None:
            await self._waiter
            return
        try:
            async with asyncio.timeout_at(self._ask_at):
                await self._waiter
        except TimeoutError:
            await self._ask(self._timeout_s)

    async def _ask(self, timeout_s: float) -> None:
        """Ask the guest whether it is there, and end the command where it is not."""
        within_s = max(self._started + timeout_s - self._loop.time(), _LEAST_ANSWER_S)
        if not await self._wire.answers(within_s):
            self.lost(
                f"the sandbox's guest does not answer, and the command's limit of {timeout_s:g} s is over"
            )
        elif not self._over:
            self._ask_at = max(self._loop.time(), self._started + timeout_s) + KILL_GRACE_S

    def _use(self, chunk: OutputChunk) -> None:
        """Acknowledge output once it is used, so that no more comes than is."""
        index = _STREAMS.index(chunk.stream)
        self._used[index] = chunk.offset + len(chunk.data)
        if self._used[index] - self._acked[index] >= self._window // 4 and not self._over:
            self._acked[index] = self._used[index]
            self._wire.send(guest.ACK, self._request, guest.PLACE.pack(index, self._used[index]))

    def _pump(self) -> None:
        if not self._begun:
            return
        while self._pending and (self._sent < self._skip or self._room > self._sent):
            block = self._pending[0]
            if self._sent < self._skip:
                count = min(self._skip - self._sent, len(block))
            else:
                count = min(self._room - self._sent, self._window // 4, len(block))
                self._wire.send(guest.INPUT, self._request, block[:count])
            self._sent += count
            self._waiting_bytes -= count
            if count == len(block):
                self._pending.popleft()
            else:
                self._pending[0] = block[count:]
        if self._closing and not self._closed and not self._pending:
            self._closed = True
            self._wire.send(guest.INPUT_END, self._request)
        if self._waiting_bytes <= self._window:
            self._release()

    def _release(self) -> None:
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)
        self._drained = None


def command_end(payload: bytes | bytearray) -> CommandEnd:
    """Read an EXITED payload."""
    by_signal, value, flags, seconds = guest.EXITED.unpack_from(payload)
    return CommandEnd(
        None if by_signal else value,
        value if by_signal else None,
        seconds,
        timed_out=bool(flags & guest.TIMED_OUT),
        truncated=bool(flags & guest.DROPPED),
        oom_killed=bool(flags & guest.OOM_KILLED),
        orphans=bool(flags & guest.ORPHANS),
    )
