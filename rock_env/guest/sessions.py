"""Sessions of the box: a program on a terminal, or one shell that runs command after command and keeps its state.

Used by `init`, imported when the first session is opened. A shell session needs nothing but a POSIX shell: the shell
reads its script from a pipe, where each command is one quoted `eval`, and says each exit status on another.
"""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]
import fcntl
import marshal
import os
import termios
from _collections import deque  # type: ignore[import-not-found]
from _struct import Struct
from time import monotonic

from .command import ALL, RING, BoxCommand, OutputBuffer
from .commands import Commands
from .loop import READABLE, WRITABLE, Loop
from .places import Refused
from .processes import descendants, kill_tree, send_group_signal, send_signal
from .protocol import NOT_FOUND, PRECONDITION, REFUSED, WINDOW_BYTES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_WINDOW_SIZE = Struct("HHHH")
_INTERRUPT_S = 0.5
"""How long a shell whose programs were killed may take to come to its end of the command."""
_MOST = 1 << 20


class Sessions:
    """All sessions of the box."""

    def __init__(self, commands: Commands, loop: Loop) -> None:
        self._commands = commands
        self._loop = loop
        self._shells: dict[str, Shell] = {}
        self._terminals: dict[str, int] = {}
        self._by_key: dict[str, tuple[int, str]] = {}

    def open(self, payload: bytes | bytearray) -> str:
        """Open a session and return its name; one whose key opened one before, that one's."""
        key, spec = marshal.loads(payload)
        known = self._by_key.get(key)
        if known is not None:
            if known[0] != hash(spec):
                raise Refused(PRECONDITION, f"key {key!r} was used for another session; take a new one")
            return known[1]
        what = marshal.loads(spec)
        name = self._commands.new_name("s")
        if what["rows"]:
            self._open_terminal(name, what)
        else:
            self._shells[name] = Shell(name, what, self._commands, self._loop)
        if key:
            self._by_key[key] = (hash(spec), name)
        return name

    def execute(self, request: int, payload: bytes | bytearray) -> None:
        """Run a command in a shell session."""
        what = marshal.loads(marshal.loads(payload)[2])
        shell = self._shells.get(what["session"])
        if shell is None:
            where = " with a terminal; write to it" if what["session"] in self._terminals else ""
            raise Refused(NOT_FOUND, f"there is no shell session {what['session']!r} in this box{where}")
        self._commands.execute(request, payload, start=lambda name: shell.submit(name, what))

    def resize(self, name: str, rows: int, columns: int) -> None:
        """Change the size of a session's terminal."""
        command = self._commands.find(name)
        if name not in self._terminals or command.exit:
            raise Refused(PRECONDITION, f"session {name!r} has no terminal (any more)")
        fcntl.ioctl(self._terminals[name], termios.TIOCSWINSZ, _WINDOW_SIZE.pack(rows, columns, 0, 0))

    def close(self, name: str) -> None:
        """End a session and what runs in it; one that has ended is closed already."""
        command = self._commands.named.get(name)
        if command is None or not name.startswith("s"):
            raise Refused(NOT_FOUND, f"there is no session {name!r} in this box (any more)")
        shell = self._shells.get(name)
        if shell is not None:
            shell.closed = True
        if not command.exit:
            kill_tree(command.pid)

    def _forget_terminal(self, name: str) -> None:
        del self._terminals[name]

    def _open_terminal(self, name: str, what: dict[str, Any]) -> None:
        master, slave = os.openpty()
        fcntl.ioctl(master, termios.TIOCSWINSZ, _WINDOW_SIZE.pack(what["rows"], what["columns"], 0, 0))
        what["argv"] = what["argv"] or ["/bin/sh"]
        what["env"] = {"TERM": "xterm-256color", **what["env"]}
        try:
            pid, _ = self._commands.spawner.start(what, [slave] * 3, tty=True)
        except BaseException:
            os.close(master)
            raise
        finally:
            os.close(slave)
        output = OutputBuffer(master, keep=RING, limit=None, ring=WINDOW_BYTES, hold=True)
        command = BoxCommand(name, pid=pid, stdin=os.dup(master), outputs=[output])
        self._terminals[name] = command.stdin
        command.kill = lambda number: _signal_foreground(command, number)
        command.on_over = lambda *_: self._forget_terminal(name)
        self._commands.adopt(command, what)


def _signal_foreground(command: BoxCommand, number: int) -> None:
    """Signal what is in the foreground of the terminal."""
    try:
        group = os.tcgetpgrp(command.stdin)
    except OSError:
        group = command.pid
    send_group_signal(group or command.pid, number)


class Shell:
    """One long-lived shell and the commands that wait for it. What they write in the background comes with the next."""

    def __init__(self, name: str, what: dict[str, Any], commands: Commands, loop: Loop) -> None:
        self._commands = commands
        self._loop = loop
        self._queue: deque[tuple[BoxCommand, dict[str, Any]]] = deque()
        self._current: BoxCommand | None = None
        self._number = 0
        self._said = b""
        self.closed = False
        self._script, self._status, self._fds = -1, -1, [-1, -1]
        what["argv"] = [*(what["argv"] or ["/bin/sh"]), "/proc/self/fd/3"]
        pipes = [os.pipe2(os.O_CLOEXEC) for _ in range(4)]
        null = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
        theirs = [null, pipes[0][1], pipes[1][1], pipes[2][0], pipes[3][1]]
        ours = [pipes[0][0], pipes[1][0], pipes[2][1], pipes[3][0]]
        try:
            pid, _ = commands.spawner.start(what, theirs)
        except BaseException:
            for fd in ours:
                os.close(fd)
            raise
        finally:
            for fd in theirs:
                os.close(fd)
        self._fds, self._script, self._status = ours[:2], ours[2], ours[3]
        os.set_blocking(self._status, False)
        loop.watch(self._status, READABLE, self._hear)
        for index, fd in enumerate(self._fds):
            os.set_blocking(fd, False)
            loop.watch(fd, READABLE, lambda _, index=index: self._read(index))  # type: ignore[misc]
        self.command = BoxCommand(name, pid=pid, stdin=-1, outputs=[])
        self.command.on_over = self._over
        commands.adopt(self.command, {"argv": what["argv"], "timeout_s": None})
        self._write("exec 3<&-\n")

    def submit(self, name: str, what: dict[str, Any]) -> BoxCommand:
        """Run a command after those that were given before."""
        if self.command.exit or self.closed:
            raise Refused(PRECONDITION, "the session has ended; open another")
        outputs = [OutputBuffer(-1, keep=ALL, limit=what["limit"]) for _ in range(2)]
        command = BoxCommand(name, pid=self.command.pid, stdin=-1, outputs=outputs)
        command.argv = what["argv"]
        command.kill = lambda number: self._kill(command, number)
        command.on_timeout = self._interrupt
        if name:
            self._commands.named[name] = command
        self._queue.append((command, what))
        if self._current is None:
            self._next()
        return command

    def _next(self) -> None:
        self._current = None
        if not self._queue or self.command.exit:
            return
        command, what = self._queue.popleft()
        self._current = command
        self._number += 1
        command.started = monotonic()
        command.oom_before = self._commands.oom_count()
        self._commands.register(command, what["timeout_s"])
        text = what["argv"][0].replace("'", "'\\''")
        # `command`: a syntax error in the text then ends the text alone, not the shell.
        self._write(f"command eval '{text}' 4>&-\necho \"{self._number} $?\" >&4\n")

    def _write(self, text: str) -> None:
        """Hand the shell its script. It reads as it runs, so a long command may need room to be waited for."""
        data = memoryview(text.encode(errors="surrogateescape"))
        os.set_blocking(self._script, False)
        self._unwritten = data
        self._write_on()

    def _write_on(self) -> None:
        try:
            while self._unwritten:
                self._unwritten = self._unwritten[os.write(self._script, self._unwritten) :]
        except BlockingIOError:
            self._loop.watch(self._script, WRITABLE, lambda _: self._write_on())
            return
        except OSError:  # the shell is gone, which is noticed by its end
            pass
        self._loop.forget(self._script)

    def _hear(self, _: int) -> None:
        try:
            data = os.read(self._status, 4096)
        except BlockingIOError:
            return
        if not data:
            self._loop.forget(self._status)
            return
        *lines, self._said = (self._said + data).split(b"\n")
        for line in lines:
            number, _space, code = line.partition(b" ")
            if self._current is not None and number == b"%d" % self._number and code.isdigit():
                for index in range(2):
                    self._read(index)
                late = self._current.timed_out
                self._commands.over(self._current, late, signal.SIGKILL if late else int(code))
                self._next()
        self._said = self._said[-64:]

    def _read(self, index: int) -> None:
        left = _MOST
        while left > 0 and self._fds[index] >= 0:
            try:
                data = os.read(self._fds[index], 1 << 16)
            except BlockingIOError:
                break
            if not data:
                self._shut(index)
            elif self._current is not None:
                self._current.outputs[index].add(data)
            left -= len(data)
        if self._current is not None:
            for listener in tuple(self._current.listeners):
                listener.push()

    def _shut(self, index: int) -> None:
        self._loop.forget(self._fds[index])
        os.close(self._fds[index])
        self._fds[index] = -1

    def _kill(self, command: BoxCommand, number: int) -> None:
        if command is self._current:
            for pid in descendants(self.command.pid) or [self.command.pid]:
                send_signal(pid, number)
        elif number == signal.SIGKILL:
            for waiting in tuple(self._queue):
                if waiting[0] is command:
                    self._queue.remove(waiting)
                    self._commands.over(command, True, number)

    def _interrupt(self) -> None:
        """Kill what the shell runs; the shell itself only if it does not come to the command's end then."""
        current = self._current
        for pid in descendants(self.command.pid):
            send_signal(pid, signal.SIGKILL)

        def insist() -> None:
            if current is not None and current is self._current and not self.command.exit:
                kill_tree(self.command.pid)

        self._loop.at(monotonic() + _INTERRUPT_S, insist)

    def _over(self, by_signal: bool, value: int) -> None:
        for index in range(2):
            self._read(index)
            if self._fds[index] >= 0:
                self._shut(index)
        for fd in (self._script, self._status):
            self._loop.forget(fd)
            os.close(fd)
        current, self._current = self._current, None
        if current is not None:
            self._commands.over(current, by_signal, value)
        for command, _ in self._queue:
            self._commands.named.pop(command.name, None)
            for listener in tuple(command.listeners):
                text = b"the session ended before this command was run"
                self._commands.line.send(REFUSED, listener.request, PRECONDITION, text)
                listener.leave()
        self._queue.clear()
