"""The frames between a box's guest and the server: kinds, layouts, and the reader that cuts them from a stream.

Imported by the guest, which has the standard library alone, and by the server's end (`guest_host/link`). It knows
lengths and kinds and never looks into a payload. A frame is kind (1 byte), request id (4), payload length (4), payload.
The server is trusted, so its structured payloads are `marshal`; nothing that the guest sends is more than
bytes and fixed structs, and a length beyond the reader's limit is refused before a byte of it is kept.
"""

from __future__ import annotations

from _struct import Struct  # the wrapper module costs a millisecond at each box's start

TYPE_CHECKING = False  # the type checker reads it as True; importing `typing` would cost 5 ms
if TYPE_CHECKING:
    from typing import Any

HEADER = Struct("!BII")
EXITED = Struct("!BiBd")
"""How a command ended (0 exit code, 1 signal), the value, `DROPPED | TIMED_OUT | OOM_KILLED | ORPHANS`, seconds it ran."""
DROPPED, TIMED_OUT, OOM_KILLED, ORPHANS = 1, 2, 4, 8
STARTED = Struct("!BQ")
"""`RESUMED | STDIN_CLOSED`, and how many bytes of standard input have arrived; the command's name follows."""
RESUMED, STDIN_CLOSED = 1, 2
PLACE = Struct("!BQ")
"""An offset in output stream 0 or 1."""
COUNT = Struct("!Q")
ENTRY = Struct("!QIdHH")
"""One file: size, mode, modified at, length of its path, length of its link target; both texts follow."""
PROCESS = Struct("!IBBiBdH")
"""One process: pid, 1 if it ended, then as `EXITED`, length of its name; its name and its argv (NUL between) follow."""
SECONDS = Struct("!d")
SIZE = Struct("!HH")
"""Rows and columns of a terminal."""

VERSION = 1
"""Of this protocol. A server speaks its own and the one before, so that boxes of the release before are taken up."""
PREVIOUS = 0
"""The version of a peer that tells none."""
VERSION_SIZE = Struct("!H")
"""How READY tells the guest's version, behind its first byte, to a server that told its own."""
_TELLS = 0x52F0 << 16
"""Marks the request id of a HELLO that tells the server's version in its low half. A guest of version 0 repeats the id as
any other, and takes 32 bytes of token and no more: nothing else of a HELLO could tell it."""
TOKEN_BYTES = 32
"""Of a token, of a nonce and of a proof: a stranger's frames carry so much and no more."""
MAX_FRAME_BYTES = 2 << 20
"""What a guest may send; and a server, but for a command's description."""
MAX_REQUEST_BYTES = 16 << 20
WINDOW_BYTES = 1 << 20
"""So much of a stream may be under way unacknowledged."""
BULK_WINDOW_BYTES = 4 << 20
"""The same of a file or a tree: enough that four processes in a row seldom wait for one another."""
ENDLESS = (1 << 63) - 1
"""Credit for input that nobody reads any more: it may all be sent, and is dropped."""

# What the server asks. HELLO is the first frame of a connection; its answer is READY. Over a network HELLO carries a
# nonce in place of the token, its answer is CHALLENGE, and the answer to that is PROOF.
HELLO, CONFIG, LEASE, END, PING, PROOF = range(1, 7)
EXEC, ATTACH, START, SIGNAL, PROCESSES, OPEN, RESIZE, CLOSE, KILL_ALL, PAUSE, RESUME = range(10, 21)
READ, WRITE, STAT, LIST, WATCH = range(30, 35)
DIAL = 36
# Said about a request in progress: bytes for it, their end, bytes taken from it, a signal, nobody listens any more.
INPUT, INPUT_END, ACK, KILL, DETACH = range(40, 45)
# What the guest answers.
READY, DATA, DONE, REFUSED, CREDIT, EVENT, CHALLENGE = range(64, 71)
BEGUN, STDOUT, STDERR, GAP, EXIT = range(72, 77)

NOT_FOUND, INVALID, INFRA, PRECONDITION, EXHAUSTED, DISK_FULL = b"N", b"I", b"F", b"P", b"E", b"D"
"""First byte of a REFUSED payload: which error it is; the rest is its message. In lower case: for a limit of the box."""

_BUFFER_BYTES = 16 << 10


def hello_request(version: int) -> int:
    """Return the request id of a HELLO that tells a version."""
    return _TELLS | version


def told_version(request: int) -> int:
    """Return the version that a HELLO tells by its request id; 0 where it tells none."""
    return request & 0xFFFF if request & ~0xFFFF == _TELLS else 0


def proof(token: bytes, of: bytes, nonces: bytes) -> bytes:
    """Return what shows that its sender, b"guest" or b"server", knows the token, without telling it.

    `nonces` are the server's and the guest's, one behind the other: both chose, so nothing recorded is a proof again.
    """
    import hmac  # here: boxes with a unix socket never need it, and it costs milliseconds of their start

    return hmac.digest(token, b"rock-" + of + b"\0" + nonces, "sha256")


class BadFrame(Exception):
    """The peer does not speak this protocol."""


class FrameReader:
    """Cuts a byte stream into frames. Receive into `space()`, then hand the count to `filled`."""

    def __init__(self, limit: int = MAX_FRAME_BYTES) -> None:
        self.limit = limit
        self._buffer = bytearray(_BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        self._have = 0
        self._large = bytearray()  # the payload of a frame that does not fit the buffer, filled in place
        self._large_have = 0
        self._large_head = (0, 0)

    @property
    def within(self) -> bool:
        """Return whether the rest of a large frame is awaited."""
        return bool(self._large)

    def space(self) -> memoryview:
        """Return where to put the next bytes; never empty."""
        if self._large:
            return memoryview(self._large)[self._large_have :]
        return self._view[self._have :]

    def filled(self, count: int) -> list[tuple[int, int, bytes | bytearray]]:
        """Take the `count` bytes put into `space()`; return the frames complete now. Raise `BadFrame`."""
        if self._large:
            self._large_have += count
            if self._large_have < len(self._large):
                return []
            kind, request = self._large_head
            payload, self._large = self._large, bytearray()
            return [(kind, request, payload)]
        frames: list[tuple[int, int, Any]] = []
        self._have += count
        start = 0
        while self._have - start >= HEADER.size:
            kind, request, size = HEADER.unpack_from(self._buffer, start)
            if size > self.limit:
                raise BadFrame(f"a frame of {size} bytes; at most {self.limit} are valid")
            body = start + HEADER.size
            if body + size > self._have:
                if HEADER.size + size > _BUFFER_BYTES:
                    self._start_large(kind, request, size, body)
                    return frames
                break
            frames.append((kind, request, bytes(self._view[body : body + size])))
            start = body + size
        rest = self._have - start
        if start and rest:
            self._buffer[:rest] = self._buffer[start : self._have]
        self._have = rest
        return frames

    def _start_large(self, kind: int, request: int, size: int, body: int) -> None:
        self._large = bytearray(size)
        self._large_have = self._have - body
        self._large[: self._large_have] = self._view[body : self._have]
        self._large_head = (kind, request)
        self._have = 0
