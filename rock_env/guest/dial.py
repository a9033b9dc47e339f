"""Connections from the server to whoever listens on the box's loopback address, as streams of frames.

Used by `init`, imported when the first is asked for. Each way has a window: what the server has not acknowledged is not
read from the socket, and the server sends no more than it has credit for. Each way ends by itself: an empty DATA frame
says that the box's side has ended, INPUT_END that the server's has.
"""

from __future__ import annotations

import os
from _collections import deque  # type: ignore[import-not-found]
from _socket import AF_INET, AF_INET6, SHUT_WR, SO_ERROR, SOCK_STREAM, SOL_SOCKET, socket

from .door import Job, Line
from .loop import READABLE, WRITABLE, Loop
from .places import Refused
from .protocol import BEGUN, COUNT, CREDIT, DATA, DONE, EXHAUSTED, PRECONDITION, REFUSED, WINDOW_BYTES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MAX_CONNECTIONS = 256
_PLACES = ((AF_INET, "127.0.0.1"), (AF_INET6, "::1"))
_BLOCK_BYTES = 1 << 18
_CREDIT_STEP = WINDOW_BYTES // 4
_EINPROGRESS = 115

_open: set[Dial] = set()


class Dial(Job):
    """One connection, from the request for it to its end."""

    def __init__(self, request: int, payload: bytes | bytearray, line: Line, loop: Loop) -> None:
        if len(_open) >= MAX_CONNECTIONS:
            raise Refused(
                EXHAUSTED, f"more than {MAX_CONNECTIONS} connections into a sandbox; close some first"
            )
        self._request, self._line, self._loop = request, line, loop
        self._port = COUNT.unpack(payload)[0]
        self._places = list(_PLACES)
        self._sock: Any = None
        self._pending: deque[memoryview] = deque()
        self._sent = self._acked = self._written = self._credited = 0
        self._connected = self._in_ended = self._out_ended = self._shut = False
        _open.add(self)
        line.begin(request, self)
        self._try_next("nobody answered")

    # -- connecting

    def _try_next(self, reason: str) -> None:
        """Connect to the next place where it may listen; refuse where there is none left."""
        while self._places:
            family, host = self._places.pop(0)
            try:
                self._sock = socket(family, SOCK_STREAM)
                self._sock.setblocking(False)
                code = self._sock.connect_ex((host, self._port))
            except OSError as error:  # no IPv6 here
                code = error.errno or 1
            if code in (0, _EINPROGRESS):
                self._loop.watch(self._sock.fileno(), WRITABLE, self._ready)
                return
            reason = os.strerror(code)
            self._drop()
        self._fail(f"nothing listens on port {self._port} of the sandbox: {reason}")

    def _begun(self) -> None:
        code = self._sock.getsockopt(SOL_SOCKET, SO_ERROR)
        if code:
            self._drop()
            self._try_next(os.strerror(code))
            return
        self._connected = True
        self._line.send(BEGUN, self._request)
        self._watch()

    # -- both ways

    def input(self, data: bytes | bytearray) -> None:
        if not self._shut:
            self._pending.append(memoryview(data))
            self._flush()

    def input_end(self) -> None:
        self._in_ended = True
        self._flush()

    def ack(self, index: int, offset: int) -> None:
        if self._acked < offset <= self._sent:
            self._acked = offset
            self._watch()

    def push(self) -> None:
        self._watch()

    def detach(self) -> None:
        self._line.finish(self._request)
        self._drop()
        _open.discard(self)

    def _ready(self, events: int) -> None:
        if not self._connected:
            self._begun()
            return
        if events & WRITABLE:
            self._flush()
        if self._sock is not None and events & ~WRITABLE and self._wants():
            self._read()

    def _wants(self) -> bool:
        return not self._out_ended and self._sent - self._acked < WINDOW_BYTES and not self._line.full

    def _read(self) -> None:
        try:
            data = self._sock.recv(_BLOCK_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            self._fail(f"the sandbox broke the connection off: {error.strerror}")
            return
        self._line.send(DATA, self._request, data)
        self._sent += len(data)
        if not data:
            self._out_ended = True
        self._watch()

    def _flush(self) -> None:
        if not self._connected:
            return
        try:
            while self._pending:
                count = self._sock.send(self._pending[0])
                self._written += count
                if count == len(self._pending[0]):
                    self._pending.popleft()
                else:
                    self._pending[0] = self._pending[0][count:]
            if self._in_ended and not self._shut:
                self._shut = True
                self._sock.shutdown(SHUT_WR)
        except BlockingIOError:
            pass
        except OSError as error:
            self._fail(f"the sandbox broke the connection off: {error.strerror}")
            return
        if self._written - self._credited >= _CREDIT_STEP:
            self._credited = self._written
            self._line.send(CREDIT, self._request, COUNT.pack(self._written))
        self._watch()

    def _watch(self) -> None:
        """Wait for what can be used now; end where both ways have ended."""
        if self._sock is None or not self._connected:
            return
        if self._out_ended and self._shut:
            self._line.send(DONE, self._request)
            self.detach()
            return
        if not self._out_ended and self._line.full:
            self._line.push_later(self)
        events = (READABLE if self._wants() else 0) | (WRITABLE if self._pending else 0)
        if events:
            self._loop.watch(self._sock.fileno(), events, self._ready)
        else:
            self._loop.forget(self._sock.fileno())

    # -- its end

    def _fail(self, reason: str) -> None:
        self._line.send(REFUSED, self._request, PRECONDITION, reason.encode())
        self.detach()

    def _drop(self) -> None:
        if self._sock is not None:
            self._loop.forget(self._sock.fileno())
            self._sock.close()
            self._sock = None
