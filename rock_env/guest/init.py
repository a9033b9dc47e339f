"""The one program inside a process sandbox: starts commands, carries their streams, reads and writes files.

Run by `rock_env.backends.process` as pid 1 of the box, with the host on stdin and stdout. It uses the standard
library alone and imports as little as it can, because its start is most of what a new box costs. It never
decides how long a command may run (the host does) and never trusts a path.

Frames, both ways: kind (1 byte), request id (4), payload length (4), payload. The host is trusted, so its
structured payloads are `marshal`; nothing that comes back is more than bytes and fixed structs.
"""

# pathlib would cost more than the rest of a box's start together.
# ruff: noqa: PTH103, PTH105, PTH112, PTH114, PTH115, PTH118, PTH119, PTH120, PTH123, PTH208
from __future__ import annotations

import contextlib
import ctypes
import errno
import marshal
import os
import resource
import select
import signal
import stat
import struct

TYPE_CHECKING = False  # the type checker reads it as True; importing `typing` would cost 5 ms
if TYPE_CHECKING:
    from typing import Any, NoReturn

HEADER = struct.Struct("!BII")
EXITED = struct.Struct("!BiB")
"""How the command ended (0 exit code, 1 signal), the value, and 1 if output was dropped."""
ENTRY = struct.Struct("!QIdHH")
"""One file: size, mode, modified at, length of its path, length of its link target; both texts follow."""

CONFIG, EXEC, STDIN, STDIN_EOF, KILL, KILL_ALL, READ, WRITE, STAT, LIST = range(10)
READY, STDOUT, STDERR, EXIT, DATA, DONE, REFUSED = range(10, 17)
PAUSE, RESUME = range(17, 19)

NOT_FOUND, INVALID, INFRA = b"N", b"I", b"F"
MAX_ENTRIES = 100_000
_PIPE_BYTES = 1 << 16
_BLOCK = 1 << 20
_GOING, _STOPPED = (b"R", b"S"), (b"T", b"t")
_LOOK_S = 0.001
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_CHILD_SUBREAPER = 1, 4, 36
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO}


class Refused(Exception):
    """A request that cannot be served; `kind` tells the host which error to raise."""

    def __init__(self, kind: bytes, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message


class Command:
    """One running command and the pipe ends the guest holds of it."""

    def __init__(self, request: int, pid: int, limit: int, fds: tuple[int, int, int]) -> None:
        self.request = request
        self.pid = pid
        self.stdin, out, err = fds
        self.outputs = {out: STDOUT, err: STDERR}
        self.room = {out: limit, err: limit}
        self.pending = bytearray()
        self.stdin_eof = False
        self.dropped = False


class Guest:
    """The event loop of the box: one thread, one poll."""

    def __init__(self, channel_in: int, channel_out: int) -> None:
        self.channel_in = channel_in
        self.channel_out = channel_out
        self.poll = select.poll()
        self.poll.register(channel_in, select.POLLIN)
        self.commands: dict[int, Command] = {}
        self.by_fd: dict[int, Command] = {}
        self.by_pid: dict[int, Command] = {}
        self.config: dict[str, Any] = {}
        self.halted: set[int] = set()
        self.prctl = ctypes.CDLL(None).prctl
        self.wake, wake_writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake_writer, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Python's handler would let a command end its pid 1
        self.poll.register(self.wake, select.POLLIN)

    def serve(self) -> NoReturn:
        """Answer the host until it hangs up; then end everything in the box."""
        while True:
            for fd, _ in self.poll.poll():
                if fd == self.channel_in:
                    self.take_frame()
                elif fd == self.wake:
                    self.reap()
                elif (command := self.by_fd.get(fd)) is None:
                    continue
                elif fd == command.stdin:
                    self.feed(command)
                else:
                    self.drain(command, fd, _PIPE_BYTES)

    def send(self, kind: int, request: int, payload: bytes = b"") -> None:
        view = memoryview(HEADER.pack(kind, request, len(payload)) + payload)
        while view:
            view = view[os.write(self.channel_out, view) :]

    def receive(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            block = os.read(self.channel_in, min(size - len(data), _BLOCK))
            if not block:
                self.stop()
            data += block
        return bytes(data)

    def take_frame(self) -> None:
        kind, request, size = HEADER.unpack(self.receive(HEADER.size))
        payload = self.receive(size)
        try:
            if kind in (STDIN, STDIN_EOF, KILL):
                self.control(kind, request, payload)
            elif kind == EXEC:
                self.start(request, marshal.loads(payload))
            elif kind == CONFIG:
                self.configure(marshal.loads(payload))
                self.send(READY, request)
            else:
                self.serve_files(kind, request, payload)
        except Refused as refused:
            self.send(REFUSED, request, refused.kind + refused.message.encode(errors="replace"))
        except OSError as error:
            self.send(REFUSED, request, _kind_of(error) + str(error).encode(errors="replace"))

    def configure(self, config: dict[str, Any]) -> None:
        self.config = config
        os.umask(0o022)
        os.chdir(config["workdir"])
        # Undumpable: a command of the box, which has the guest's uid, can neither trace it nor open its /proc files.
        self.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
        if os.getpid() != 1:  # as pid 1 it inherits orphans anyway
            self.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    def control(self, kind: int, request: int, payload: bytes) -> None:
        command = self.commands.get(request)
        if command is None:
            return  # the command ended while the host was writing
        if kind == KILL:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(command.pid, payload[0])
        else:
            command.pending += payload
            command.stdin_eof = command.stdin_eof or kind == STDIN_EOF
            self.feed(command)

    def start(self, request: int, what: dict[str, Any]) -> None:
        ends = [os.pipe2(os.O_CLOEXEC) for _ in range(3)]
        try:
            pid = os.fork()
        except OSError:
            for fd in (fd for pair in ends for fd in pair):
                os.close(fd)
            raise
        if pid == 0:
            self.become(what, (ends[0][0], ends[1][1], ends[2][1]))
        for fd in (ends[0][0], ends[1][1], ends[2][1]):
            os.close(fd)
        ours = (ends[0][1], ends[1][0], ends[2][0])
        command = Command(request, pid, what["limit"], ours)
        self.commands[request] = self.by_pid[pid] = command
        for fd in ours:
            os.set_blocking(fd, False)
            self.by_fd[fd] = command
        for fd in command.outputs:
            self.poll.register(fd, select.POLLIN)

    def become(self, what: dict[str, Any], fds: tuple[int, int, int]) -> NoReturn:
        """Turn the forked child into the command; a failure is told the way a shell tells it (126, 127)."""
        code = 126
        try:
            os.setsid()
            for target, fd in enumerate(fds):
                os.dup2(fd, target)
            self.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGCHLD):
                signal.signal(number, signal.SIG_DFL)
            for limit, value in self.config["rlimits"]:
                hard = resource.getrlimit(limit)[1]
                value = value if hard == resource.RLIM_INFINITY else min(value, hard)
                resource.setrlimit(limit, (value, value))
            os.chdir(self.absolute(what["cwd"]))
            environment = {**self.config["env"], **what["env"]}
            os.execvpe(what["argv"][0], what["argv"], environment)
        except FileNotFoundError as error:
            code = 127
            os.write(2, f"cannot run {what['argv'][0]!r}: {error.strerror}\n".encode(errors="replace"))
        except BaseException as error:  # noqa: BLE001  the child must never return into the guest's loop
            os.write(2, f"cannot run {what['argv'][0]!r}: {error}\n".encode(errors="replace"))
        os._exit(code)

    def feed(self, command: Command) -> None:
        if command.stdin < 0:
            return
        try:
            while command.pending:
                del command.pending[: os.write(command.stdin, command.pending[:_PIPE_BYTES])]
        except BlockingIOError:
            self.poll.register(command.stdin, select.POLLOUT)
            return
        except BrokenPipeError:
            command.stdin_eof = True
        if command.stdin_eof:
            self.shut(command.stdin)
            command.stdin = -1
        else:
            with contextlib.suppress(KeyError):
                self.poll.unregister(command.stdin)

    def drain(self, command: Command, fd: int, budget: int) -> None:
        """Pass on what the pipe holds, at most `budget` bytes; beyond the command's limit it is dropped."""
        while budget > 0:
            try:
                data = os.read(fd, min(budget, _PIPE_BYTES))
            except BlockingIOError:
                return
            if not data:
                del command.outputs[fd]
                self.shut(fd)
                return
            budget -= len(data)
            keep = data[: command.room[fd]]
            command.room[fd] -= len(keep)
            command.dropped = command.dropped or len(keep) < len(data)
            if keep:
                self.send(command.outputs[fd], command.request, keep)

    def shut(self, fd: int) -> None:
        with contextlib.suppress(KeyError):
            self.poll.unregister(fd)
        del self.by_fd[fd]
        os.close(fd)

    def reap(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while os.read(self.wake, 512):
                pass
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            command = self.by_pid.pop(pid, None)
            if command is not None:
                self.finish(command, status)

    def finish(self, command: Command, status: int) -> None:
        """Report the end. What the command wrote is in its pipes by now; a survivor's later output is not its own."""
        for fd in tuple(command.outputs):
            self.drain(command, fd, _PIPE_BYTES)
        for fd in (*command.outputs, command.stdin):
            if fd in self.by_fd:
                self.shut(fd)
        del self.commands[command.request]
        by_signal = os.WIFSIGNALED(status)
        value = os.WTERMSIG(status) if by_signal else os.WEXITSTATUS(status)
        self.send(EXIT, command.request, EXITED.pack(by_signal, value, command.dropped))

    def kill_all(self) -> None:
        """Kill every process of the box but this one, and whatever they started meanwhile."""
        while True:
            if os.getpid() == 1:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(-1, signal.SIGKILL)
            else:
                for pid in _descendants(os.getpid()):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
            try:
                pid, status = os.waitpid(-1, 0)
            except ChildProcessError:
                return
            command = self.by_pid.pop(pid, None)
            if command is not None:
                self.finish(command, status)

    def pause(self) -> None:
        """Stop every process of the box but this one, and wait until they stand still.

        `resume` leaves alone what was stopped before. One in uninterruptible sleep is not waited for: such as the
        parent of a vfork whose child was stopped; it comes to nothing of its own before it stops, too.
        """
        while True:
            states = _states(self.others())
            new = [pid for pid, state in states.items() if pid not in self.halted and state not in _STOPPED]
            if not new and not any(states.get(pid) in _GOING for pid in self.halted):
                return
            for pid in new:  # a process that was signalled starts no others: the last look finds nothing new
                self.halted.add(pid)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGSTOP)
            if not new:
                select.select((), (), (), _LOOK_S)

    def resume(self) -> None:
        """Let go on what `pause` stopped."""
        for pid in self.halted.intersection(self.others()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        self.halted.clear()

    def others(self) -> list[int]:
        """Return every process of the box but this one."""
        if os.getpid() == 1:
            return [int(name) for name in os.listdir("/proc") if name.isdigit() and name != "1"]
        return _descendants(os.getpid())

    def stop(self) -> NoReturn:
        self.send = lambda *_: None  # type: ignore[method-assign]  # nobody listens any more
        self.kill_all()
        os._exit(0)

    def absolute(self, path: str) -> str:
        """Return `path` as this process sees it: relative to the working folder, whose public name may differ."""
        public, workdir = self.config["public_workdir"], self.config["workdir"]
        if path == public or path.startswith(public + "/"):
            return str(workdir + path[len(public) :])
        return os.path.join(workdir, path)

    def inside(self, path: str) -> str:
        """Return the real path behind `path`, which must lie in a folder of the box that belongs to its user."""
        if not path or "\0" in path:
            raise Refused(INVALID, f"{path!r} is not a path")
        real = os.path.realpath(self.absolute(path))
        if not any(real == root or real.startswith(root + "/") for root in self.config["roots"]):
            raise Refused(INVALID, f"path {path!r} leads to {real!r}, outside the box's own folders")
        return real

    def serve_files(self, kind: int, request: int, payload: bytes) -> None:
        if kind == KILL_ALL:
            self.kill_all()
        elif kind == PAUSE:
            self.pause()
        elif kind == RESUME:
            self.resume()
        elif kind == READ:
            self.read(request, *marshal.loads(payload))
        elif kind == WRITE:
            self.write(request, *marshal.loads(payload))
        elif kind == STAT:
            self.stat(request, payload.decode(errors="surrogateescape"))
        elif kind == LIST:
            self.list(request, *marshal.loads(payload))
        else:
            raise Refused(INFRA, f"unknown request {kind}")
        self.send(DONE, request)

    def read(self, request: int, path: str, offset: int, length: int) -> None:
        # O_NONBLOCK: opening a named pipe must not stop the box.
        fd = os.open(self.inside(path), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise Refused(INVALID, f"{path!r} is not a regular file")
            while length > 0 and (data := os.pread(fd, min(length, _BLOCK), offset)):
                self.send(DATA, request, data)
                offset += len(data)
                length -= len(data)
        finally:
            os.close(fd)

    def write(self, request: int, path: str, content: bytes, mode: int, append: bool) -> None:
        real = self.inside(path)
        if os.path.isdir(real):
            raise Refused(INVALID, f"{path!r} is a folder")
        folder = os.path.dirname(real)
        os.makedirs(folder, mode=0o755, exist_ok=True)
        if append:
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            _fill(os.open(real, flags, 0o600), content, mode)
        else:
            part = f"{folder}/.{request}.part"
            _fill(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), content, mode)
            os.replace(part, real)

    def stat(self, request: int, path: str) -> None:
        """Describe one file; a symbolic link is described, not followed."""
        absolute = os.path.normpath(self.absolute(path))
        if absolute in self.config["roots"]:
            real = self.inside(path)
        else:
            real = os.path.join(self.inside(os.path.dirname(absolute)), os.path.basename(absolute))
        self.send(DATA, request, _entry(real, path))

    def list(self, request: int, path: str, recursive: bool) -> None:
        """Describe a folder's entries, each by its path from there. Links are never followed."""
        folders, sent = [(self.inside(path), "")], 0
        while folders:
            folder, prefix = folders.pop()
            for name in sorted(os.listdir(folder)):
                real = f"{folder}/{name}"
                self.send(DATA, request, _entry(real, prefix + name))
                sent += 1
                if sent > MAX_ENTRIES:
                    raise Refused(INVALID, f"{path!r} has more than {MAX_ENTRIES} entries; list a part of it")
                if recursive and os.path.isdir(real) and not os.path.islink(real):
                    folders.append((real, f"{prefix}{name}/"))


def _entry(real: str, shown: str) -> bytes:
    info = os.lstat(real)
    link = os.readlink(real).encode(errors="surrogateescape") if stat.S_ISLNK(info.st_mode) else b""
    path = shown.encode(errors="surrogateescape")
    return ENTRY.pack(info.st_size, info.st_mode, info.st_mtime, len(path), len(link)) + path + link


def _fill(fd: int, content: bytes, mode: int) -> None:
    try:
        os.fchmod(fd, mode)
        view = memoryview(content)
        while view:
            view = view[os.write(fd, view) :]
    finally:
        os.close(fd)


def _kind_of(error: OSError) -> bytes:
    if error.errno == errno.ENOENT:
        return NOT_FOUND
    return INFRA if error.errno in _FULL else INVALID


def _states(pids: list[int]) -> dict[int, bytes]:
    """Return the letter of each process's state, as in `man 5 proc`."""
    states = {}
    for pid in pids:
        try:
            with open(f"/proc/{pid}/stat", "rb") as file:
                states[pid] = file.read().rpartition(b")")[2].split()[0]
        except OSError:
            continue  # it ended while we looked
    return states


def _descendants(root: int) -> list[int]:
    """Return every process below `root`. Only used where the box has no process namespace of its own."""
    parents: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    parents[int(name)] = int(file.read().rpartition(b")")[2].split()[1])
            except OSError:
                continue  # it ended while we looked
    found = {root}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return sorted(found - {root})


def main() -> NoReturn:
    """Serve the host on stdin and stdout; anything printed by accident goes to stderr instead."""
    channel_in, channel_out = (os.dup(fd) for fd in (0, 1))
    null = os.open("/dev/null", os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(2, 1)
    os.close(null)
    Guest(channel_in, channel_out).serve()


if __name__ == "__main__":
    main()
