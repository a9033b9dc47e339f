"""The warm interpreter of a box: a process of the box's user that forks programs from what it has imported.

Made by the zygote in a box whose spec preloads modules (see `backends/process/preload`), before the box's guest is
told anything. It serves `client` on a socket of the box, and nobody outside the box knows it. `Warm.serve` returns in
the process that is to run a program, which is then as like a fresh interpreter as can be made; what cannot is told
COLD. Whatever the box's user does to it, it does to itself.
"""

# As flat and bare as the rest of the guest: pathlib and contextlib would be imported for nothing.
# ruff: noqa: PTH109, PTH116, PTH118, PTH120, PTH123, PTH208, SIM105
from __future__ import annotations

import array
import io
import marshal
import os
import resource
import runpy
import select
import signal
import socket
import stat
import sys
import time
from importlib.machinery import SourceFileLoader

from ..libc import PR_SET_PDEATHSIG, prctl
from ..processes import kill_tree, send_group_signal
from .client import ADDRESS, COLD, HEAD_BYTES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    Program = tuple[Callable[..., object], tuple[Any, ...]]
    """What to call, with what, in the outermost frame."""

__all__ = ["Warm", "listen"]

_REQUEST_S = 2.0
_MAX_REQUEST_BYTES = 8 << 20
_STREAMS = 3
_AT_START = ("GLIBC_", "LANG", "LC_", "LD_", "LOCPATH", "MALLOC_", "PYTHON")
"""Variables, by their beginning, of which an interpreter takes note when it starts and then no more."""
_FRAMES_OF_MODULE, _FRAMES_OF_FILE = 1, 2
"""Calls of ours, below those that a program's own interpreter would have: `warm_start`, and `exec` for a file."""
_IMPORTED = (".py", ".pyc", ".so")
_OOM_FIRST = b"1000"


def listen() -> socket.socket:
    """Return the socket at which a box's programs are asked for."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(ADDRESS)
    listener.listen(64)
    return listener


class Warm:
    """The loop that takes requests, and what has to be known of the interpreter as it was."""

    def __init__(self, modules: set[str], path: list[str], caches: set[str]) -> None:
        self._modules = modules - {"__main__"}
        self._names = {name.partition(".")[0] for name in self._modules}
        self._path = path
        self._caches = caches
        self._at_start = _at_start(dict(os.environb))
        self._running: dict[int, tuple[socket.socket, int]] = {}
        """By the connection's descriptor: who asked, and the process that runs it."""
        self._alone: set[int] = set()
        """Connections whose other end is gone, while the process is on its way out."""

    def serve(self, listener: socket.socket, limits: list[tuple[int, int]]) -> Program:
        """Serve until the box ends; return in a process that was forked to run what was asked for.

        `limits`: what each process of the box is held to, by the limit's number.
        """
        self._listener = listener
        null = os.open(os.devnull, os.O_RDWR)
        for fd in range(_STREAMS):
            os.dup2(null, fd)
        os.close(null)
        _limit([(number, value, value) for number, value in limits])
        _be_chosen_first()
        self._wake, self._waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)
        self._poll = select.poll()
        self._poll.register(self._wake, select.POLLIN)
        self._poll.register(listener.fileno(), select.POLLIN)
        while True:
            for fd, events in self._poll.poll():
                if fd == self._wake:
                    self._reap()
                elif fd != listener.fileno():
                    self._hear(fd, events)
                elif (program := self._take()) is not None:
                    return program

    # -- those who ask

    def _take(self) -> Program | None:
        """Take a request; a program in the process that is to run it."""
        connection, _ = self._listener.accept()
        fds: list[int] = []
        try:
            connection.settimeout(_REQUEST_S)
            request = _receive(connection, fds)
            pid = -1 if self._needs_its_own(request, fds) else os.fork()
            if pid == 0:
                return self._become(request, fds, connection)
            if pid < 0:
                connection.send(COLD)
        except (
            OSError,
            ValueError,
            TypeError,
            EOFError,
        ):  # a request like no client's, or no room for a process
            _tell(connection, COLD)
            pid = -1
        for fd in fds:
            os.close(fd)
        if pid < 0:
            connection.close()
            return None
        self._running[connection.fileno()] = (connection, pid)
        self._poll.register(connection.fileno(), select.POLLIN)
        return None

    def _hear(self, fd: int, events: int) -> None:
        """Pass signals on; who asked and is gone takes the program along."""
        if fd not in self._running:
            return
        connection, pid = self._running[fd]
        try:
            numbers = connection.recv(16)
        except OSError:
            numbers = b""
        for number in numbers:
            send_group_signal(pid, number)
        if not numbers:
            self._poll.unregister(fd)
            self._alone.add(fd)
            kill_tree(pid)

    def _reap(self) -> None:
        try:
            while os.read(self._wake, 512):
                pass
        except BlockingIOError:
            pass
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            code = os.waitstatus_to_exitcode(status)
            for fd, (connection, other) in tuple(self._running.items()):
                if other == pid:
                    _tell(connection, b"exit %d" % code if code >= 0 else b"signal %d" % -code)
                    if fd not in self._alone:
                        self._poll.unregister(fd)
                    self._alone.discard(fd)
                    connection.close()
                    del self._running[fd]

    # -- what they ask for

    def _needs_its_own(self, request: tuple[Any, ...], fds: list[int]) -> bool:
        """Return whether a program would notice that its interpreter was started before."""
        arguments, folder, variables, _, _ = request
        if len(fds) != _STREAMS or any(os.isatty(fd) for fd in fds):
            return True  # a terminal belongs to one session, and that is not ours
        if _at_start(dict(variables)) != self._at_start:
            return True
        if arguments[0] == "-m":
            return len(arguments) < 2 or self._shadows(folder)
        path = os.path.join(folder, arguments[0])
        is_file = stat.S_ISREG(os.stat(path).st_mode)
        return not is_file or self._shadows(os.path.dirname(os.path.realpath(path)))

    def _shadows(self, folder: str) -> bool:
        """Return whether something there would have been imported instead of a module that has been."""
        return any(
            name.partition(".")[0] in self._names and ("." not in name or name.endswith(_IMPORTED))
            for name in os.listdir(folder)
        )

    def _become(self, request: tuple[Any, ...], fds: list[int], connection: socket.socket) -> Program:
        """Turn this forked process into one that has just started its interpreter."""
        arguments, folder, variables, limits, mask = request
        try:
            server = os.getppid()
            os.setsid()
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != server:
                os._exit(1)
            self._settle(connection, fds)
            os.chdir(folder)
            os.umask(mask)
            _limit((number, soft, hard) for number, (soft, hard) in enumerate(limits))
            for name in tuple(os.environb):
                del os.environb[name]
            for name, value in variables:
                os.environb[name] = value
            time.tzset()
            return self._program(arguments, os.getcwd())
        except BaseException as error:  # noqa: BLE001  named boundary: it must never return into the server's loop
            os.write(2, f"rock-python: cannot begin: {error}\n".encode(errors="replace"))
            os._exit(1)

    def _settle(self, connection: socket.socket, fds: list[int]) -> None:
        """Take over the streams and let go of all that is the server's."""
        for owner in (connection, self._listener, *(other for other, _ in self._running.values())):
            owner.detach()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for target, fd in enumerate(fds):  # which are higher: our own 0, 1 and 2 are open
            os.dup2(fd, target)
        os.closerange(_STREAMS, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
        for name, fd in (("stdin", 0), ("stdout", 1), ("stderr", 2)):
            stream = _stream(fd, name, getattr(sys, name))
            setattr(sys, name, stream)
            setattr(sys, f"__{name}__", stream)

    def _program(self, arguments: list[str], folder: str) -> Program:
        main = type(sys)("__main__")
        main.__dict__.update(__annotations__={}, __builtins__=sys.modules["builtins"])
        of_module = arguments[0] == "-m"
        if of_module:
            sys.argv = ["-m", *arguments[2:]]
            program = (runpy._run_module_as_main, (arguments[1],))  # type: ignore[attr-defined]  # as python does
        else:
            path = os.path.join(folder, arguments[0])
            sys.argv, folder = list(arguments), os.path.dirname(os.path.realpath(path))
            loader = SourceFileLoader("__main__", path)
            main.__dict__.update(__file__=path, __cached__=None, __loader__=loader)
            program = _of_file(path, main.__dict__)
        sys.orig_argv = ["python", *arguments]
        sys.path[:] = [folder, *self._path]
        sys.setrecursionlimit(sys.getrecursionlimit() + (_FRAMES_OF_MODULE if of_module else _FRAMES_OF_FILE))
        for cache in sys.path_importer_cache.keys() - self._caches:
            del sys.path_importer_cache[cache]
        sys.modules["__main__"] = main
        for name in sys.modules.keys() - self._modules - {"__main__", "runpy" if of_module else ""}:
            del sys.modules[name]
        return program


def _of_file(path: str, names: dict[str, Any]) -> Program:
    with open(path, "rb") as file:
        source = file.read()
    try:
        return exec, (compile(source, path, "exec", dont_inherit=True), names)
    except (SyntaxError, ValueError):
        return compile, (source, path, "exec", 0, True)  # to fail where it is told without any frame


def _receive(connection: socket.socket, fds: list[int]) -> tuple[Any, ...]:
    """Read a request and the streams that come with it, which are then in `fds` whatever happens."""
    room = socket.CMSG_SPACE(8 * _STREAMS)
    head, ancillary, _, _ = connection.recvmsg(HEAD_BYTES, room, socket.MSG_CMSG_CLOEXEC)
    for level, kind, content in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            numbers = array.array("i")
            numbers.frombytes(content)
            fds += numbers
    size = int.from_bytes(head, "little")
    if not 0 < size <= _MAX_REQUEST_BYTES:
        raise ValueError(f"a request of {size} bytes")
    data = bytearray()
    while len(data) < size:
        piece = connection.recv(size - len(data))
        if not piece:
            raise EOFError
        data += piece
    request = marshal.loads(data)
    arguments, folder, variables, limits, mask = request
    if not (arguments and all(isinstance(each, str) for each in (*arguments, folder)) and type(mask) is int):
        raise TypeError("no request of a client")
    dict(variables), [(soft, hard) for soft, hard in limits]
    return request  # type: ignore[no-any-return]


def _tell(connection: socket.socket, what: bytes) -> None:
    try:
        connection.send(what)
    except OSError:
        pass  # it waits no more


def _at_start(variables: dict[bytes, bytes]) -> dict[bytes, bytes]:
    prefixes = tuple(os.fsencode(each) for each in _AT_START)
    return {name: value for name, value in variables.items() if name.startswith(prefixes)}


def _limit(limits: Iterable[tuple[int, int, int]]) -> None:
    """Lower this process's limits to these (number, soft, hard); none is raised."""
    for number, soft, hard in limits:
        top = resource.getrlimit(number)[1]
        hard = _lower(hard, top)
        resource.setrlimit(number, (_lower(soft, hard), hard))


def _lower(one: int, other: int) -> int:
    if resource.RLIM_INFINITY in (one, other):
        return one if other == resource.RLIM_INFINITY else other
    return min(one, other)


def _be_chosen_first() -> None:
    """When the box's memory is full, the kernel shall take this or what it forks, as any command, before the guest."""
    try:
        fd = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
        os.write(fd, _OOM_FIRST)
        os.close(fd)
    except OSError:
        pass  # a container may be given /proc for reading alone


def _stream(fd: int, name: str, like: Any) -> Any:
    """Open a standard stream as an interpreter does at its start."""
    mode = "r" if fd == 0 else "w"
    buffer: Any = open(fd, f"{mode}b", closefd=False)  # noqa: SIM115  it is for the program, to its end
    buffer.raw.name = f"<{name}>"
    text = io.TextIOWrapper(
        buffer,
        encoding=like.encoding,
        errors=like.errors,
        newline=None if fd == 0 else "\n",
        line_buffering=fd == _STREAMS - 1,
    )
    text.mode = mode  # type: ignore[misc]
    return text
