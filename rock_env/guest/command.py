"""One command of the box, what is kept of its output streams, and one caller that hears it.

Made by `commands` and `sessions`. It holds state; reading, writing and ending are `commands`' part. Offsets in a stream
count every accepted byte from its start, so they stay true when the front has been dropped.
"""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]
from _collections import deque  # type: ignore[import-not-found]
from time import monotonic

from .door import Job
from .processes import kill_tree, send_group_signal
from .protocol import DONE, EXIT, GAP, PLACE, STDOUT, WINDOW_BYTES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any, Protocol

    from .door import Line

    class Feeding(Protocol):
        """Who moves the bytes of commands: `commands.Commands`."""

        line: Line

        def feed(self, command: BoxCommand) -> None: ...

        def read_on(self, command: BoxCommand) -> None: ...


ALL, ACKED, RING = range(3)
"""What is kept: everything, what was not acknowledged yet, or the last bytes."""
_SMALL = 4096


class OutputBuffer:
    """One output stream. `fd` is where its bytes come from, -1 where it has ended or others bring them.

    `hold`: of a ring, that its writer waits for a slow listener (a terminal), instead of the listener missing bytes.
    """

    def __init__(
        self,
        fd: int,
        *,
        keep: int,
        limit: int | None,
        ring: int = WINDOW_BYTES,
        hold: bool = False,
        window: int = WINDOW_BYTES,
    ) -> None:
        self.fd = fd
        self.keep = keep
        self.window = window
        """How much of it may be under way unacknowledged."""
        self.base = 0
        """Offset of the first byte kept."""
        self.end = 0
        """Offset behind the last byte accepted."""
        self.dropped = False
        self.paused = False
        """Not watched, since `wants` was false."""
        self._limit = limit
        self._ring = ring
        self._hold = hold
        self._blocks: deque[bytes] = deque()

    @property
    def size(self) -> int:
        """Return how many bytes are kept."""
        return self.end - self.base

    def wants(self, acked: Iterable[int]) -> bool:
        """Return whether to read on; `acked` is how far each listener has come, none when nobody listens."""
        if self.keep == ACKED:
            return self.end - self.base < self.window
        if not self._hold:
            return True
        return self.end - min(acked, default=self.end) < self.window

    def add(self, data: bytes) -> None:
        """Accept bytes; those beyond the limit are dropped."""
        if self._limit is not None and self.end + len(data) > self._limit:
            data = data[: self._limit - self.end]
            self.dropped = True
            if not data:
                return
        blocks = self._blocks
        if blocks and len(blocks[-1]) + len(data) <= _SMALL:
            blocks[-1] += data
        else:
            blocks.append(data)
        self.end += len(data)
        if self.keep == RING and self.size > self._ring:
            self._forget(self.end - self._ring, exactly=False)

    def acked(self, offset: int) -> None:
        """Drop what nobody can ask for again."""
        if self.keep == ACKED:
            self._forget(min(offset, self.end), exactly=True)

    def pieces(self, offset: int) -> list[bytes]:
        """Return the bytes from `offset`, not before `base`, to the end."""
        found: list[bytes] = []
        start = self.end
        for block in reversed(self._blocks):
            start -= len(block)
            if start <= offset:
                if start + len(block) > offset:
                    found.append(block[offset - start :] if offset > start else block)
                break
            found.append(block)
        found.reverse()
        return found

    def _forget(self, offset: int, *, exactly: bool) -> None:
        blocks = self._blocks
        while blocks and self.base + len(blocks[0]) <= offset:
            self.base += len(blocks.popleft())
        if self.base < offset and exactly:
            blocks[0] = blocks[0][offset - self.base :]
            self.base = offset


class BoxCommand:
    """One command. Its pipe ends are -1 where they are closed, or where a session carries its bytes."""

    def __init__(self, name: str, *, pid: int, stdin: int, outputs: list[OutputBuffer]) -> None:
        self.name = name
        self.pid = pid
        self.stdin = stdin
        self.outputs = outputs
        self.argv: list[str] = []
        self.digest = 0
        self.listeners: list[Listener] = []
        self.pending: deque[memoryview] = deque()
        self.received = 0
        self.written = 0
        self.credited = 0
        self.stdin_eof = stdin < 0
        self.started = monotonic()
        self.deadline: float | None = None
        self.timer: list[Any] | None = None
        self.timed_out = False
        self.oom_before = 0
        self.writer: Listener | None = None
        """The one caller whose input counts, where callers resend theirs; None: everyone's does."""
        self.failed: int | None = None
        """Exit code to report where the program could not be run."""
        self.exit = b""
        """Its EXITED payload, once it is over."""
        self.on_over: Callable[[bool, int], None] = lambda by_signal, value: None
        self.kill: Callable[[int], None] = lambda number: send_group_signal(self.pid, number)
        self.on_timeout: Callable[[], None] = lambda: kill_tree(self.pid)


class Listener(Job):
    """One caller that hears a command."""

    def __init__(
        self, commands: Feeding, command: BoxCommand, request: int, *, follow: bool, offsets: list[int]
    ) -> None:
        self._commands = commands
        self._line = commands.line
        self.command = command
        self.request = request
        self._follow = follow
        self._sent = list(offsets)
        self.acked = list(offsets)

    def push(self) -> None:
        """Send what the command has written and the server has room for; then its end."""
        line, waiting = self._line, False
        for index, output in enumerate(self.command.outputs):
            sent = self._sent[index]
            if sent < output.base:
                sent = self.acked[index] = output.base
                line.send(GAP, self.request, PLACE.pack(index, sent))
            if sent < output.end:
                for piece in output.pieces(sent):
                    if line.full:
                        line.push_later(self)
                        break
                    if sent - self.acked[index] >= output.window:
                        break
                    line.send(STDOUT + index, self.request, piece)
                    sent += len(piece)
                self._sent[index] = sent
                waiting = waiting or sent < output.end
        if waiting:
            return
        if self.command.exit:
            line.send(EXIT, self.request, self.command.exit)
            self.leave()
        elif not self._follow:
            line.send(DONE, self.request)
            self.leave()

    def ack(self, index: int, offset: int) -> None:
        if index < len(self.acked) and self.acked[index] < offset <= self._sent[index]:
            self.acked[index] = offset
            self.command.outputs[index].acked(offset)
            self._commands.read_on(self.command)
            self.push()

    def input(self, data: bytes | bytearray) -> None:
        command = self.command
        if command.writer not in (None, self):
            return  # cut off without knowing it; the one that took over sends the same
        command.received += len(data)
        if not command.stdin_eof:
            command.pending.append(memoryview(data))
        self._commands.feed(command)

    def input_end(self) -> None:
        if self.command.writer not in (None, self):
            return
        self.command.stdin_eof = True
        self._commands.feed(self.command)

    def signal(self, number: int) -> None:
        if not self.command.exit:
            self.command.kill(number)

    def detach(self) -> None:
        self.leave()
        if not self.command.name and not self.command.exit:
            self.command.kill(signal.SIGKILL)

    def leave(self) -> None:
        """Hear no more of it."""
        self._line.finish(self.request)
        if self in self.command.listeners:
            self.command.listeners.remove(self)
            self._commands.read_on(self.command)
