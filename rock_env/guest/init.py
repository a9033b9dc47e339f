"""The one program inside a box, on every backend: starts commands, carries their streams, reads and writes files.

Run as pid 1 of the box where the backend can (`start.py`), or called as `serve(listener)` in a process forked for it.
It uses the standard library alone and imports as little as it can, because its start is most of what a new box
costs. It outlives the server that started it, and ends the box by itself when its lease or its lifetime ends.
"""

# ruff: noqa: PTH108, PTH123
from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]
import marshal
import os
import sys
from _socket import (
    AF_INET,
    AF_INET6,
    AF_UNIX,
    IPPROTO_TCP,
    SO_REUSEADDR,
    SOCK_STREAM,
    SOL_SOCKET,
    TCP_NODELAY,
    socket,
)
from errno import EACCES, EBUSY, ENXIO, EPERM, EROFS
from time import monotonic

from . import protocol as p
from .commands import Commands
from .door import Door, FrameConnection, Line
from .files import OWN_LIMITS, Files, error_kind
from .libc import PR_SET_CHILD_SUBREAPER, PR_SET_DUMPABLE, filter_calls, prctl
from .loop import Loop
from .places import BoxFolders, Refused, take_from_image

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn

    from .sessions import Sessions

    Act = Callable[[int, bytes | bytearray], None]

FIRST_S = 20.0
"""How long a guest waits for its first server, and then for its configuration: without that nothing else ends it."""
_FIRST_FREE_FD = 10
"""Descriptors below are kept occupied: a child's own, up to here, can then be made in any order."""


class Guest:
    """The box: its server, its deadlines, and who answers which frame."""

    def __init__(self, listener: int, token: bytes = b"") -> None:
        while os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC) < _FIRST_FREE_FD:
            pass
        self.loop = Loop()
        self.line = Line()
        self._connection: FrameConnection | None = None
        self._commands: Commands | None = None
        self._sessions: Sessions | None = None
        self._places: BoxFolders
        self._linger_s: float | None = 0.0
        self._lingering: list[Any] | None = None
        self._lease: list[Any] | None = None
        self._unclaimed: list[Any] = self.loop.at(monotonic() + FIRST_S, self.end)
        self._acts: dict[int, Act] = {p.CONFIG: self._configure, p.LEASE: self._renew, p.PING: self._done}
        self._jobs: dict[int, Act] = {
            p.INPUT: lambda request, payload: self.line.job(request).input(payload),
            p.INPUT_END: lambda request, _: self.line.job(request).input_end(),
            p.ACK: lambda request, payload: self.line.job(request).ack(*p.PLACE.unpack(payload)),
            p.KILL: lambda request, payload: self.line.job(request).signal(payload[0]),
            p.DETACH: lambda request, _: self.line.job(request).detach(),
            p.END: lambda *_: self.end(),
        }
        self._door = Door(listener, self.loop, self._enter, token)
        # Python's own handler would let a command end its pid 1; what is ignored, commands would ignore as well.
        signal.signal(signal.SIGINT, lambda *_: None)

    # -- the server comes and goes

    def _enter(self, connection: FrameConnection) -> None:
        """Take a connection that showed the token; it replaces the one before."""
        if self._connection is not None:
            self._connection.close()
        if self._lingering is not None:
            self.loop.cancel(self._lingering)
        if self._connection is None and self._commands is None:
            self.loop.cancel(self._unclaimed)
            self._unclaimed = self.loop.at(monotonic() + FIRST_S, self.end)
        self._connection = connection
        self.line.connect(connection)
        connection.receive(self._frame, self._hung_up)

    def _hung_up(self) -> None:
        """End the box some time after its server went, unless another comes."""
        self._connection = None
        self.line.disconnect()
        if self._linger_s == 0:
            self.end()
        elif self._linger_s is not None:
            self._lingering = self.loop.at(monotonic() + self._linger_s, self.end)

    def _frame(self, kind: int, request: int, payload: bytes | bytearray) -> None:
        """Answer one frame. What fails is refused, with the kind of error it is."""
        act = self._jobs.get(kind) or self._acts.get(kind)
        try:
            if act is None:
                state = (
                    "not understood by this guest"
                    if self._commands
                    else "refused until the box is configured"
                )
                raise Refused(p.PRECONDITION, f"request {kind} is {state}")
            act(request, payload)
        except Refused as refused:
            self.line.send(p.REFUSED, request, refused.kind, refused.message.encode(errors="replace"))
        except OSError as error:
            self.line.send(p.REFUSED, request, error_kind(error), str(error).encode(errors="replace"))
        except (OverflowError, RecursionError) as error:
            said = f"request {kind} has a number, or is about a depth, that this box cannot take: {error}"
            self.line.send(p.REFUSED, request, p.INVALID, said.encode())
        except Exception as error:  # noqa: BLE001  named boundary: one bad request must not end the whole box
            said = f"the guest failed at request {kind}: {type(error).__name__}: {error}. Please report it."
            self.line.send(p.REFUSED, request, p.INFRA, said.encode(errors="replace"))

    def _done(self, request: int, _: bytes | bytearray = b"") -> None:
        self.line.send(p.DONE, request)

    # -- its life

    def _configure(self, request: int, payload: bytes | bytearray) -> None:
        """Set the box up; once in its life."""
        if self._commands is not None:
            raise Refused(p.PRECONDITION, "the box is configured already")
        config = marshal.loads(payload)
        if config.get("filter"):
            filter_calls(config["filter"])
        os.umask(0o022)
        if config.get("image"):
            take_from_image(config)
        os.chdir(config["workdir"])
        self._places = BoxFolders(config)
        OWN_LIMITS.update(config.get("own", {}))
        commands = Commands(config, self._places, self.loop, self.line)
        # Undumpable: a command of the box, which has the guest's uid, can neither trace it nor open its /proc files.
        prctl(PR_SET_DUMPABLE, 0)
        if os.getpid() != 1:  # as pid 1 it inherits orphans anyway
            prctl(PR_SET_CHILD_SUBREAPER, 1)
        self.loop.cancel(self._unclaimed)
        self._linger_s = config["linger_s"]
        if config["deadline_s"] is not None:
            self.loop.at(monotonic() + config["deadline_s"], self.end)
        self._commands = commands
        self._offer(commands, Files(self._places, self.line, self.loop))
        self._done(request)

    def _offer(self, commands: Commands, files: Files) -> None:
        """Answer everything from now on."""
        self._acts |= {
            p.ATTACH: commands.attach,
            p.READ: files.read,
            p.LIST: files.list,
            p.WRITE: files.write,
            p.EXEC: self._execute,
            p.WATCH: self._watch,
            p.DIAL: self._dial,
        }
        answered: dict[int, Act] = {
            p.STAT: files.stat,
            p.KILL_ALL: lambda *_: commands.kill_all(),
            p.PAUSE: lambda *_: commands.pause(),
            p.RESUME: lambda *_: commands.resume(),
            p.SIGNAL: lambda _, payload: commands.signal(payload),
            p.PROCESSES: commands.describe,
            p.START: lambda request, payload: self._name(request, commands.start_process(payload)),
            p.OPEN: lambda request, payload: self._name(request, self._the_sessions().open(payload)),
            p.RESIZE: lambda _, payload: self._resize(payload),
            p.CLOSE: lambda _, payload: self._the_sessions().close(bytes(payload).decode()),
        }
        for kind, act in answered.items():
            self._acts[kind] = self._answered(act)

    def _answered(self, act: Act) -> Act:
        def answer(request: int, payload: bytes | bytearray) -> None:
            act(request, payload)
            self._done(request)

        return answer

    def _execute(self, request: int, payload: bytes | bytearray) -> None:
        assert self._commands is not None
        session = marshal.loads(marshal.loads(payload)[2]).get("session")
        if session is None:
            self._commands.execute(request, payload)
        else:
            self._the_sessions().execute(request, payload)

    def _the_sessions(self) -> Sessions:
        if self._sessions is None:
            from .sessions import Sessions

            assert self._commands is not None
            self._sessions = Sessions(self._commands, self.loop)
        return self._sessions

    def _resize(self, payload: bytes | bytearray) -> None:
        rows, columns = p.SIZE.unpack_from(payload)
        self._the_sessions().resize(bytes(payload[p.SIZE.size :]).decode(), rows, columns)

    def _watch(self, request: int, payload: bytes | bytearray) -> None:
        from .watch import Watch

        Watch(request, payload, self._places, self.line, self.loop)

    def _dial(self, request: int, payload: bytes | bytearray) -> None:
        from .dial import Dial

        Dial(request, payload, self.line, self.loop)

    def _name(self, request: int, name: str) -> None:
        self.line.send(p.DATA, request, name.encode())

    def _renew(self, request: int, payload: bytes | bytearray) -> None:
        if self._lease is not None:
            self.loop.cancel(self._lease)
        self._lease = self.loop.at(monotonic() + p.SECONDS.unpack(payload)[0], self.end)
        self._done(request)

    def end(self) -> NoReturn:
        """End every process of the box and then this one."""
        if os.getpid() != 1 and self._commands is not None:  # with pid 1 the kernel ends all others
            self.line.disconnect()  # the connection's end tells the server that all is over: it stays open until then
            self._commands.kill_all()
        os._exit(0)


def serve(listener: int, token: bytes = b"") -> NoReturn:
    """Be the guest of a box whose server connects to `listener`, an inherited listening socket. Never returns.

    A listener on a network needs the box's `token`.
    """
    Guest(listener, token).loop.run()


def listen(path: str) -> int:
    """Bind a socket at `path` and tell the one who waits at the FIFO `ready` beside it, if there is one.

    Who waits has opened it before this guest was started: one that has left by now is not waited for.
    """
    sock = socket(AF_UNIX, SOCK_STREAM)
    if os.access(path, os.F_OK):
        os.unlink(path)
    sock.bind(path)
    sock.listen(64)
    ready = f"{path.rpartition('/')[0]}/ready"
    if os.access(ready, os.F_OK):
        try:
            os.close(os.open(ready, os.O_WRONLY | os.O_NONBLOCK))
        except OSError as error:
            if error.errno != ENXIO:
                raise
    return sock.detach()


def listen_tcp(address: str) -> int:
    """Bind a TCP socket at HOST:PORT, whose connections send small frames at once."""
    host, _, port = address.rpartition(":")
    sock = socket(AF_INET6 if ":" in host else AF_INET, SOCK_STREAM)
    sock.setsockopt(SOL_SOCKET, SO_REUSEADDR, 1)
    sock.setsockopt(IPPROTO_TCP, TCP_NODELAY, 1)  # accepted connections have it from their listener
    sock.bind((host.strip("[]"), int(port)))
    sock.listen(64)
    return sock.detach()


def take_token(path: str) -> bytes:
    """Read the token that was put into a file for this guest alone, and remove the file where that is possible."""
    with open(path, "rb") as file:
        token = file.read(p.TOKEN_BYTES + 1)
    if len(token) != p.TOKEN_BYTES:
        sys.exit(f"the token file {path} has {len(token)} bytes or more; expected {p.TOKEN_BYTES}")
    try:
        os.unlink(path)
    except OSError as error:
        if error.errno not in (EROFS, EACCES, EPERM, EBUSY):  # mounted so that nobody here can
            raise
    return token


def main(arguments: list[str]) -> NoReturn:
    """Take `--listen-fd N`, `--listen-path P` or `--listen-tcp HOST:PORT`; on a network `--token-file P` must follow."""
    options = dict(zip(arguments[::2], arguments[1::2]))  # noqa: B905  an odd one is missed below
    token_file = options.pop("--token-file", None)
    if len(options) == 1 and len(arguments) == 2 * (1 + (token_file is not None)):
        ((how, where),) = options.items()
        if how in ("--listen-fd", "--listen-path", "--listen-tcp") and (how != "--listen-tcp" or token_file):
            token = b"" if token_file is None else take_token(token_file)
            if how == "--listen-fd":
                serve(int(where), token)
            serve(listen(where) if how == "--listen-path" else listen_tcp(where), token)
    expected = "--listen-fd N, --listen-path P or --listen-tcp HOST:PORT, and on a network --token-file P"
    sys.exit(f"expected {expected}; got {arguments!r}")
