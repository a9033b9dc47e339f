"""Commands of the box: starting them, their streams, their deadlines, their end, and who hears of it.

Used by `init`, and by `sessions` for what runs in a session. A command that has a name, which is an idempotency key or
that of a background process, outlives whoever asked for it and can be attached to; any other is killed with its caller.
A command is the leader of a session of its own, so that a signal reaches all it started that did not detach itself.
"""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]
import marshal
import os
from time import monotonic

from .command import ACKED, ALL, RING, BoxCommand, Listener, OutputBuffer
from .door import Line
from .loop import READABLE, WRITABLE, Loop
from .places import BoxFolders, Refused
from .processes import Halt, signal_all
from .protocol import (
    BEGUN,
    BULK_WINDOW_BYTES,
    COUNT,
    CREDIT,
    DATA,
    DROPPED,
    ENDLESS,
    EXITED,
    NOT_FOUND,
    OOM_KILLED,
    ORPHANS,
    PRECONDITION,
    PROCESS,
    REFUSED,
    RESUMED,
    STARTED,
    STDIN_CLOSED,
    TIMED_OUT,
    WINDOW_BYTES,
)
from .spawn import Spawner

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

MAX_FINISHED = 256
"""Finished commands with a key whose results are kept, at most; the oldest go first."""
MAX_FINISHED_BYTES = 16 << 20
MAX_PAST = 20_000
"""Keys remembered whose results are gone; one of them is refused instead of run again."""
MAX_ARGV_BYTES = 4096
_READ_BYTES = 1 << 18
_PIPE_BYTES = 1 << 20
_F_SETPIPE_SZ = 1031


class Commands:
    """All commands of the box."""

    def __init__(self, config: dict[str, Any], places: BoxFolders, loop: Loop, line: Line) -> None:
        self.line = line
        self.loop = loop
        self.spawner = Spawner(config, places)
        self._places = places
        self.named: dict[str, BoxCommand] = {}
        self._finished: dict[str, int] = {}
        self._finished_bytes = 0
        self._past: dict[str, None] = {}
        self._by_pid: dict[int, BoxCommand] = {}
        self._orphans = 0
        """How many processes ended, since the last command did, that outlived what had started them."""
        self._timed: dict[BoxCommand, None] = {}
        self._counts: dict[str, int] = {}
        self._halt = Halt()
        self._halted_at: float | None = None
        oom = config["oom"]
        self._oom_fd: int = os.open(oom, os.O_RDONLY | os.O_CLOEXEC) if isinstance(oom, str) else oom or -1
        self._wake, wake_writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake_writer, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        loop.watch(self._wake, READABLE, self._reap)

    # -- asking for them

    def execute(
        self, request: int, payload: bytes | bytearray, start: Callable[[str], BoxCommand] | None = None
    ) -> None:
        """Run a command and listen to it; one whose key ran before is listened to instead."""
        key, offsets, spec = marshal.loads(payload)
        name, digest = key and f"key {key}", hash(spec)
        what = marshal.loads(spec)
        known = self._known(name, digest if what["argv"] else None) if name else None
        if known is None:
            if name and (any(offsets) or not what["argv"]):
                raise Refused(
                    NOT_FOUND, f"no command with the key {key!r} was run here; nothing can be resumed"
                )
            known = self._start(name, what) if start is None else start(name)
            known.digest = digest
            self.listen(
                known, request, follow=True, offsets=[0] * len(known.outputs), resumed=False, resends=True
            )
        else:
            self.listen(known, request, follow=True, offsets=list(offsets), resumed=True, resends=True)

    def start_process(self, payload: bytes | bytearray) -> str:
        """Start a background process and return its name; one whose key started one before, that one's."""
        key, _, spec = marshal.loads(payload)
        known = self._known(f"process key {key}", hash(spec)) if key else None
        if known is None:
            known = self._start(self.new_name("p"), marshal.loads(spec))
            known.digest = hash(spec)
            if key:
                self.named[f"process key {key}"] = known
        return known.name

    def attach(self, request: int, payload: bytes | bytearray) -> None:
        """Listen to a background process or terminal session."""
        name, offsets, follow = marshal.loads(payload)
        command = self.find(name)
        self.listen(command, request, follow=follow, offsets=list(offsets), resumed=True, resends=False)

    def find(self, name: str) -> BoxCommand:
        """Return a background process or terminal session. Raise `Refused`."""
        command = self.named.get(name)
        if command is None or command.name != name or not command.outputs:
            raise Refused(NOT_FOUND, f"there is no {name!r} in this box (any more)")
        return command

    def signal(self, payload: bytes | bytearray) -> None:
        """Signal a background process or terminal session; one that has ended needs none."""
        command = self.find(bytes(payload[1:]).decode())
        if not command.exit:
            command.kill(payload[0])

    def describe(self, request: int, _: bytes | bytearray) -> None:
        """Describe every background process, running or ended, of which something is kept."""
        for name, command in self.named.items():
            if name == command.name and name.startswith("p"):
                ended = (
                    EXITED.unpack(command.exit) if command.exit else (0, 0, 0, monotonic() - command.started)
                )
                text = name.encode(errors="surrogateescape")
                argv = "\0".join(command.argv).encode(errors="surrogateescape")[:MAX_ARGV_BYTES]
                head = PROCESS.pack(command.pid, bool(command.exit), *ended, len(text))
                self.line.send(DATA, request, head, text, argv)

    def new_name(self, prefix: str) -> str:
        self._counts[prefix] = self._counts.get(prefix, 0) + 1
        return f"{prefix}{self._counts[prefix]}"

    def _known(self, name: str, digest: int | None) -> BoxCommand | None:
        known = self.named.get(name)
        if known is None and name in self._past:
            raise Refused(
                PRECONDITION,
                f"the command with {name!r} was run and has ended, but its result is not kept any more (the last "
                f"{MAX_FINISHED} results are, up to {MAX_FINISHED_BYTES} bytes)",
            )
        if known is not None and digest is not None and digest != known.digest:
            raise Refused(PRECONDITION, f"{name!r} was used for another command; take a new key")
        return known

    def listen(
        self,
        command: BoxCommand,
        request: int,
        *,
        follow: bool,
        offsets: list[int],
        resumed: bool,
        resends: bool,
    ) -> None:
        """Send the command's output from the offsets on, and its end. `resends`: input counts from this caller only."""
        offsets = offsets[: len(command.outputs)]
        for output, offset in zip(command.outputs, offsets, strict=True):
            if offset > output.end or (offset < output.base and output.keep == ACKED):
                raise Refused(
                    PRECONDITION,
                    f"output from offset {offset} was asked for; what is kept goes from {output.base} to {output.end}",
                )
        if command.outputs[0].keep == ACKED:
            for other in tuple(command.listeners):
                self.line.send(REFUSED, other.request, PRECONDITION, b"another call took this command over")
                other.leave()
        listener = Listener(self, command, request, follow=follow, offsets=offsets)
        command.listeners.append(listener)
        self.line.begin(request, listener)
        if resends:
            command.writer = listener
        if command.name:
            flags = (RESUMED if resumed else 0) | (STDIN_CLOSED if command.stdin_eof else 0)
            self.line.send(BEGUN, request, STARTED.pack(flags, command.received), command.name.encode())
            command.credited = command.written
            self.line.send(CREDIT, request, COUNT.pack(ENDLESS if command.stdin < 0 else command.written))
        listener.push()

    # -- their life

    def _start(self, name: str, what: dict[str, Any]) -> BoxCommand:
        pipes = [os.pipe2(os.O_CLOEXEC) for _ in range(3)]
        theirs = [pipes[0][0], pipes[1][1], pipes[2][1]]
        ours = [pipes[0][1], pipes[1][0], pipes[2][0]]
        try:
            if what["mode"] == "stream":
                _widen(ours)
            act = None
            if "tree" in what:
                from .trees import tree_act

                act = tree_act(what, self._places)
            elif "changes" in what:
                from .changes import change_act

                act = change_act(what, self._places)
            before, began = self.oom_count(), monotonic()
            pid, failed = self.spawner.start(what, theirs, act=act)
        except BaseException:
            for fd in ours:
                os.close(fd)
            raise
        finally:
            for fd in theirs:
                os.close(fd)
        keep = {"capture": ALL if name else ACKED, "stream": ACKED, "ring": RING}[what["mode"]]
        limit, ring = (None, what["limit"]) if keep == RING else (what["limit"], 0)
        window = BULK_WINDOW_BYTES if what["mode"] == "stream" else WINDOW_BYTES
        outputs = [OutputBuffer(fd, keep=keep, limit=limit, ring=ring, window=window) for fd in ours[1:]]
        command = BoxCommand(name, pid=pid, stdin=ours[0], outputs=outputs)
        command.oom_before, command.started = before, began
        command.failed = failed
        self.adopt(command, what)
        return command

    def adopt(self, command: BoxCommand, what: dict[str, Any]) -> None:
        """Look after a process that was started for a command."""
        command.argv = what["argv"]
        self._by_pid[command.pid] = command
        for fd in (command.stdin, *(output.fd for output in command.outputs)):
            if fd >= 0:
                os.set_blocking(fd, False)
        for output in command.outputs:
            self._watch(command, output)
        self.register(command, what["timeout_s"])

    def register(self, command: BoxCommand, timeout_s: float | None) -> None:
        """Let the command be found by its name and end at its deadline."""
        if command.name:
            self.named[command.name] = command
        if timeout_s is not None:
            command.deadline = command.started + timeout_s
            self._timed[command] = None
            self._set_timer(command)

    def feed(self, command: BoxCommand) -> None:
        """Write what there is to the command's standard input."""
        pending = command.pending
        try:
            while pending and command.stdin >= 0:
                count = os.write(command.stdin, pending[0])
                command.written += count
                if count == len(pending[0]):
                    pending.popleft()
                else:
                    pending[0] = pending[0][count:]
        except BlockingIOError:
            self.loop.watch(command.stdin, WRITABLE, lambda _: self.feed(command))
        except OSError:  # it reads no more
            self.close_stdin(command)
        else:
            if command.stdin >= 0:
                self.loop.forget(command.stdin)
                if command.stdin_eof:
                    self.close_stdin(command)
        if command.written - command.credited >= command.outputs[0].window // 4:
            self._credit(command)

    def _credit(self, command: BoxCommand) -> None:
        command.credited = command.written
        total = COUNT.pack(ENDLESS if command.stdin < 0 else command.written)
        for listener in command.listeners:
            self.line.send(CREDIT, listener.request, total)

    def close_stdin(self, command: BoxCommand) -> None:
        """Give no more input, and take what still comes for nothing."""
        if command.stdin >= 0:
            self._shut(command.stdin)
            command.stdin = -1
            unread = bool(command.pending) or not command.stdin_eof
            command.stdin_eof = True
            command.pending.clear()
            if unread:
                self._credit(command)

    def read_on(self, command: BoxCommand) -> None:
        """Read outputs again that were let wait."""
        for index, output in enumerate(command.outputs):
            if output.paused and output.fd >= 0 and self._wants(command, index):
                self._watch(command, output)

    def _wants(self, command: BoxCommand, index: int) -> bool:
        return command.outputs[index].wants([listener.acked[index] for listener in command.listeners])

    def _watch(self, command: BoxCommand, output: OutputBuffer) -> None:
        output.paused = False
        self.loop.watch(output.fd, READABLE, lambda _: self._readable(command, output))

    def _readable(self, command: BoxCommand, output: OutputBuffer) -> None:
        self._read(command, output, output.window // 4)
        for listener in tuple(command.listeners):
            listener.push()
        if output.fd >= 0 and not self._wants(command, command.outputs.index(output)):
            output.paused = True
            self.loop.forget(output.fd)

    def _read(self, command: BoxCommand, output: OutputBuffer, size: int) -> bool:
        """Take at most `size` bytes from the pipe; return whether there were any."""
        try:
            data = os.read(output.fd, size)
        except BlockingIOError:
            return False
        except OSError:  # how a terminal says that its last user is gone
            data = b""
        if data:
            output.add(data)
        else:
            self._shut(output.fd)
            output.fd = -1
        return bool(data)

    def _shut(self, fd: int) -> None:
        self.loop.forget(fd)
        os.close(fd)

    # -- their end

    def _set_timer(self, command: BoxCommand) -> None:
        assert command.deadline is not None
        command.timer = self.loop.at(command.deadline, lambda: self._late(command))

    def _late(self, command: BoxCommand) -> None:
        if self._halted_at is None and not command.exit:  # else `resume` sets it anew
            command.timed_out = True
            command.on_timeout()

    def _reap(self, _: int) -> None:
        try:
            while os.read(self._wake, 512):
                pass
        except BlockingIOError:
            pass
        ended = []
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            ended.append((pid, status))
        for pid, status in sorted(ended, key=lambda each: each[0] in self._by_pid):  # orphans first
            self._reaped(pid, status)

    def _reaped(self, pid: int, status: int) -> None:
        """Report the end. What the command wrote is in its pipes by now; a survivor's later output is not its own."""
        command = self._by_pid.pop(pid, None)
        if command is None:
            self._orphans += 1
            return
        for output in command.outputs:
            left = _PIPE_BYTES
            while left > 0 and output.fd >= 0 and self._read(command, output, left):
                left -= _READ_BYTES
            if output.fd >= 0:
                self._shut(output.fd)
                output.fd = -1
        if command.failed is not None:
            self.over(command, False, command.failed)
            return
        by_signal = os.WIFSIGNALED(status)
        self.over(command, by_signal, os.WTERMSIG(status) if by_signal else os.WEXITSTATUS(status))

    def over(self, command: BoxCommand, by_signal: bool, value: int) -> None:
        """Note how a command ended, and tell whoever listens."""
        if command.timer is not None:
            self.loop.cancel(command.timer)
        self._timed.pop(command, None)
        command.stdin_eof = True
        self.close_stdin(command)
        killed = by_signal and value == signal.SIGKILL
        flags = DROPPED if any(output.dropped for output in command.outputs) else 0
        if command.timed_out and killed:  # else it ended by itself just before
            flags |= TIMED_OUT
        elif value and self.oom_count() > command.oom_before:
            # Also where the kernel chose a child of the command, which then failed for want of it.
            flags |= OOM_KILLED
        if self._orphans:
            flags |= ORPHANS
            self._orphans = 0
        command.exit = EXITED.pack(by_signal, value, flags, monotonic() - command.started)
        command.on_over(by_signal, value)
        for listener in tuple(command.listeners):
            listener.push()
        if command.name:
            self._keep(command)

    def _keep(self, command: BoxCommand) -> None:
        size = sum(output.size for output in command.outputs)
        self._finished[command.name] = size
        self._finished_bytes += size
        while len(self._finished) > MAX_FINISHED or self._finished_bytes > MAX_FINISHED_BYTES:
            oldest = next(iter(self._finished))
            self._finished_bytes -= self._finished.pop(oldest)
            gone = self.named.pop(oldest)
            for name in [name for name, other in self.named.items() if other is gone]:
                del self.named[name]
                self._past[name] = None
            self._past[oldest] = None
        while len(self._past) > MAX_PAST:
            del self._past[next(iter(self._past))]

    def oom_count(self) -> int:
        """Return how often the kernel killed for memory in this box's control group."""
        if self._oom_fd < 0:
            return 0
        for line in os.pread(self._oom_fd, 4096, 0).splitlines():
            if line.startswith(b"oom_kill "):
                return int(line[9:])
        return 0

    # -- all of them

    def kill_all(self) -> None:
        """Kill every process of the box but this one, and whatever they started meanwhile."""
        while True:
            signal_all(signal.SIGKILL)
            try:
                pid, status = os.waitpid(-1, 0)
            except ChildProcessError:
                return
            self._reaped(pid, status)

    def pause(self) -> None:
        """Stop all processes; the time until `resume` counts for no deadline."""
        self._halt.begin()
        self._halted_at = self._halted_at or monotonic()

    def resume(self) -> None:
        """Let them go on."""
        self._halt.end()
        if self._halted_at is not None:
            stood_s, self._halted_at = monotonic() - self._halted_at, None
            for command in self._timed:
                assert command.deadline is not None
                assert command.timer is not None
                self.loop.cancel(command.timer)
                command.deadline += stood_s
                self._set_timer(command)


def _widen(pipes: list[int]) -> None:
    """Let pipes hold more than the usual 64 KiB, as far as this user may have such pipes."""
    from fcntl import fcntl

    try:
        for fd in pipes:
            fcntl(fd, _F_SETPIPE_SZ, _PIPE_BYTES)
    except PermissionError:
        pass
