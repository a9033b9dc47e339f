"""The guest's door and its line: who may connect, the one connection that counts, and the requests in progress on it.

At a unix socket the first token ever shown becomes the box's; whoever connects later must show the same
one. On a network the guest has its token from the start, and both sides prove that they know it: it is never sent. A
newer connection with the token replaces the older. It never looks into a frame but the first ones of a connection.
Where no server is connected, what is sent on the line goes nowhere: nobody asks.
"""

from __future__ import annotations

import os
from _operator import _compare_digest
from _socket import SO_SNDBUF, SOL_SOCKET, socket
from time import monotonic

from .loop import READABLE, WRITABLE, Loop
from .protocol import (
    CHALLENGE,
    HEADER,
    HELLO,
    MAX_REQUEST_BYTES,
    PROOF,
    READY,
    TOKEN_BYTES,
    VERSION,
    VERSION_SIZE,
    BadFrame,
    FrameReader,
    proof,
    told_version,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

GREETING_S = 10.0
"""How long a connection may take to show the token."""
MAX_STRANGERS = 8
"""Connections that have shown no token yet; commands of the box may be able to connect, too."""
_TURNS = 8
"""Reads before anything else gets its turn, while a large frame comes in."""
HIGH_WATER = 1 << 20
"""With so much unsent, nothing more should be read for the server."""


class FrameConnection:
    """One accepted connection: frames in, frames out, neither ever waiting."""

    def __init__(self, fd: int, loop: Loop) -> None:
        self._sock = socket(fileno=fd)
        self._sock.setblocking(False)
        self._sock.setsockopt(SOL_SOCKET, SO_SNDBUF, HIGH_WATER)  # as much of it as the kernel allows
        self._loop = loop
        self._reader = FrameReader(TOKEN_BYTES)
        self._out: list[memoryview | bytes] = []
        self._on_frame: Callable[[int, int, bytes | bytearray], None]
        self._on_end: Callable[[], None]
        self._on_drained: Callable[[], None] = lambda: None
        self.unsent = 0
        self.open = True

    def trust(self) -> None:
        """Take frames larger than a greeting from now on."""
        self._reader.limit = MAX_REQUEST_BYTES

    def receive(
        self, on_frame: Callable[[int, int, bytes | bytearray], None], on_end: Callable[[], None]
    ) -> None:
        """Call back for each frame, and once when the peer is gone."""
        self._on_frame, self._on_end = on_frame, on_end
        self._loop.watch(self._sock.fileno(), READABLE, self._ready)

    def on_drained(self, call: Callable[[], None]) -> None:
        """Call whenever all that was sent has left."""
        self._on_drained = call

    def send(self, kind: int, request: int, *parts: bytes) -> None:
        """Send one frame, or keep what the socket does not take now."""
        if not self.open:
            return
        size = sum(map(len, parts))
        blocks: list[memoryview | bytes] = [HEADER.pack(kind, request, size), *parts]
        self.unsent += HEADER.size + size
        if self._out:
            self._out += blocks
            return
        self._out = blocks
        self._flush()

    def close(self) -> None:
        """Hang up. `on_end` is not called."""
        if self.open:
            self.open = False
            self._loop.forget(self._sock.fileno())
            self._sock.close()
            self._out = []
            self.unsent = 0

    def _flush(self) -> None:
        out = self._out
        try:
            while out:
                sent = self._sock.sendmsg(out[:64])
                self.unsent -= sent
                done = 0
                while done < len(out) and sent >= len(out[done]):
                    sent -= len(out[done])
                    done += 1
                del out[:done]
                if sent:
                    out[0] = memoryview(out[0])[sent:]
        except BlockingIOError:
            self._loop.watch(self._sock.fileno(), READABLE | WRITABLE, self._ready)
            return
        except OSError:
            self._ended()
            return
        self._out = []

    def _ready(self, events: int) -> None:
        if events & WRITABLE:
            self._flush()
            if self.open and not self._out:
                self._loop.watch(self._sock.fileno(), READABLE, self._ready)
                self._on_drained()
        if self.open and events & ~WRITABLE:
            self._take()

    def _take(self) -> None:
        for _ in range(_TURNS):
            try:
                count = self._sock.recv_into(self._reader.space())
                frames = self._reader.filled(count) if count else []
            except BlockingIOError:
                return
            except (OSError, BadFrame):
                count, frames = 0, []
            if not count:
                self._ended()
                return
            for frame in frames:
                if self.open:
                    self._on_frame(*frame)
            if not self.open or not self._reader.within:
                return

    def _ended(self) -> None:
        if self.open:
            self.close()
            self._on_end()


class Door:
    """Accepts connections and hands over those that showed, or with a `token` of its own proved, that they know it."""

    def __init__(
        self, listener: int, loop: Loop, on_enter: Callable[[FrameConnection], None], token: bytes = b""
    ) -> None:
        os.set_inheritable(listener, False)  # a command that held it could take the server's next connection
        self._sock = socket(fileno=listener)
        self._sock.setblocking(False)
        self._loop = loop
        self._on_enter = on_enter
        self._token = token
        self._challenges = bool(token)
        self._entered = False
        self._strangers: list[FrameConnection] = []
        loop.watch(self._sock.fileno(), READABLE, self._accept)

    def _accept(self, _: int) -> None:
        try:
            fd, _ = self._sock._accept()  # type: ignore[attr-defined]  # what `socket.accept` wraps
        except OSError:
            return
        stranger = FrameConnection(fd, self._loop)
        if len(self._strangers) >= MAX_STRANGERS:
            self._strangers.pop(0).close()
        self._strangers.append(stranger)

        def forget() -> None:
            if stranger in self._strangers:
                self._strangers.remove(stranger)
                stranger.close()

        nonces = b""

        def greet(kind: int, request: int, payload: bytes | bytearray) -> None:
            nonlocal nonces
            given = bytes(payload)
            if len(given) != TOKEN_BYTES or kind != (PROOF if nonces else HELLO):
                forget()
            elif nonces:
                enter(request, _compare_digest(given, proof(self._token, b"server", nonces)))
            elif self._challenges:
                nonces = given + os.urandom(TOKEN_BYTES)
                mine = nonces[TOKEN_BYTES:] + proof(self._token, b"guest", nonces)
                stranger.send(CHALLENGE, request, mine)
            else:
                known = not self._token or _compare_digest(given, self._token)
                self._token = self._token or given
                enter(request, known)

        def enter(request: int, known: bool) -> None:
            if not known:
                forget()
                return
            self._strangers.remove(stranger)
            fresh, self._entered = not self._entered, True
            stranger.trust()
            self._on_enter(stranger)
            mine = VERSION_SIZE.pack(VERSION) if told_version(request) else b""
            stranger.send(READY, request, b"\1" if fresh else b"\0", mine)

        stranger.receive(greet, forget)
        self._loop.at(monotonic() + GREETING_S, forget)


class Job:
    """A request in progress: what the server may say about it."""

    def input(self, data: bytes | bytearray) -> None:
        """Take bytes for it."""

    def input_end(self) -> None:
        """Take the end of those bytes."""

    def ack(self, index: int, offset: int) -> None:
        """Note that the server has used stream `index` up to `offset`."""

    def signal(self, number: int) -> None:
        """Send a signal to what was started."""

    def push(self) -> None:
        """Send on, now that the line has room."""

    def detach(self) -> None:
        """Stop: the server, or the caller for whom it asked, is gone."""


class Line:
    """Sends to the server that is connected now."""

    def __init__(self) -> None:
        self._connection: FrameConnection | None = None
        self._jobs: dict[int, Job] = {}
        self._late: dict[Job, None] = {}

    def connect(self, connection: FrameConnection) -> None:
        """Use this connection from now on; what was asked on another is at its end."""
        self.disconnect()
        self._connection = connection
        connection.on_drained(self._drained)

    def disconnect(self) -> None:
        """Send nothing any more, and detach every request in progress."""
        self._connection = None
        jobs, self._jobs, self._late = self._jobs, {}, {}
        for job in jobs.values():
            job.detach()

    @property
    def connected(self) -> bool:
        """Return whether there is a server."""
        return self._connection is not None

    @property
    def full(self) -> bool:
        """Return whether so much is unsent that what can wait should."""
        return self._connection is None or self._connection.unsent >= HIGH_WATER

    def send(self, kind: int, request: int, *parts: Any) -> None:
        """Send one frame."""
        if self._connection is not None:
            self._connection.send(kind, request, *parts)

    def begin(self, request: int, job: Job) -> None:
        """Let the server say more about this request."""
        self._jobs[request] = job

    def finish(self, request: int) -> None:
        """Forget a request that was answered."""
        job = self._jobs.pop(request, None)
        if job is not None:
            self._late.pop(job, None)

    def job(self, request: int) -> Job:
        """Return the request in progress; for one that has ended, one that ignores what is said."""
        return self._jobs.get(request) or _NONE

    def push_later(self, job: Job) -> None:
        """Call `job.push()` when the line has room again."""
        self._late[job] = None

    def _drained(self) -> None:
        late, self._late = self._late, {}
        for job in late:
            job.push()


_NONE = Job()
