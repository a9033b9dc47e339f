"""Requests of HTTP, at both HTTP servers: a head in time, and of the body one length, a size that the route takes, and
bytes that keep coming.

Used by the connections of the REST face and of the agents' gateway, which are uvicorn's. It reads no body: what a route
takes in all, the application bounds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

__all__ = ["BOUND", "BodyProtocol", "OneLength", "QuietServer"]

BOUND = "rock.bound"
"""In the state of a request: what to tell how many bytes its body may have."""
_LINGER_S = 1.0
"""What a refused peer still sends is taken, and dropped, for so long."""
_TWO_LENGTHS = "Content-Length and Transfer-Encoding exclude each other. Send one."


class OneLength(h11.Connection):
    """Refuses a request that tells the length of its body in two ways, of which a proxy may believe the other."""

    refused = ""
    """Why, once it has."""

    def next_event(self) -> Any:
        """Return what h11 does. Raise `h11.RemoteProtocolError`."""
        event = super().next_event()
        if type(event) is h11.Request:
            names = [name for name, _ in event.headers]
            if b"transfer-encoding" in names and b"content-length" in names:
                self.refused = _TWO_LENGTHS
                raise h11.RemoteProtocolError(self.refused)
        return event

    @property
    def chunk_bytes(self) -> int:
        """Return what is still to come of the chunk that has begun."""
        return getattr(self._reader, "_bytes_in_chunk", 0)


class _Lingering:
    """A connection whose close waits for a peer that still sends: closed with bytes unread, it would lose the answer.

    The head of an answer is sent with what follows in the same turn of the loop, which saves a small one a system call.
    """

    def __init__(self, inner: asyncio.Transport, protocol: BodyProtocol) -> None:
        self.inner = inner
        self._protocol = protocol
        self._head = b""

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def write(self, data: bytes) -> None:
        if self._head:
            data, self._head = self._head + data, b""
        elif data.startswith(b"HTTP/"):  # of a body, the same does no harm
            self._head = data
            self._protocol.loop.call_soon(self._write_head)
            return
        self.inner.write(data)

    def _write_head(self) -> None:
        if self._head:
            self.write(b"")

    def close(self) -> None:
        self._write_head()
        if self._protocol.left or not self._protocol.unread():
            self.inner.close()
            return
        self._protocol.leave()
        try:
            if self.inner.can_write_eof():
                self.inner.write_eof()
        except OSError:  # the peer is gone: nobody is left who could read the answer
            self.inner.close()
            return
        self.inner.resume_reading()
        self._protocol.loop.call_later(_LINGER_S, self.inner.close)


class BodyProtocol(H11Protocol):
    """A connection that no unfinished body keeps open: until an answer begins, its body has to go on coming.

    A body may pause while its answer is under way, as the input of a command does, and while the server takes no more.
    """

    conn: OneLength
    head_s: float
    """In which a head is there, from its first byte."""
    quiet_s = 30.0
    """Without a byte, while more of a body is to come."""
    most_bytes = 1 << 40
    """Of one chunk, where the route says nothing else."""
    _bound: int | None = None
    _heard = 0.0
    _quiet: asyncio.TimerHandle | None = None
    _headless: asyncio.TimerHandle | None = None
    left = False
    """Whether it only waits for its peer to have read the last answer."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(_Lingering(transport, self))  # type: ignore[arg-type]

    def unread(self) -> bool:
        """Return whether the peer may still be sending what was not read."""
        return self.conn.their_state in (h11.SEND_BODY, h11.ERROR) and not self.transport.is_closing()

    def leave(self) -> None:
        """Take no more requests, and let go of what came: who is gone waits for the garbage collector, among others."""
        self.left = True
        self.conn, self.cycle, self.scope = type(self.conn)(h11.SERVER), None, None  # type: ignore[assignment]

    def bound(self, most: int) -> None:
        """Refuse the present request at once if it announces a chunk of more bytes."""
        if self._wanting():
            self._bound = most
            self._watch()

    def data_received(self, data: bytes) -> None:
        if self.left:
            return
        super().data_received(data)
        begun = self.conn.their_state is h11.IDLE and bool(self.conn.trailing_data[0])
        if begun and self._headless is None:
            self.await_head()
        elif not begun and self._headless is not None:
            self._headless.cancel()
            self._headless = None

    def await_head(self) -> None:
        """Cut the connection off unless a head is there in time."""
        self._headless = self.loop.call_later(self.head_s, self.transport.abort)

    def handle_events(self) -> None:
        super().handle_events()
        self._heard = self.loop.time()
        self._watch()

    def send_400_response(self, msg: str) -> None:
        self._say(HTTPStatus.BAD_REQUEST, self.conn.refused or msg)
        self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._quiet, self._headless):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)
        self.leave()

    def _wanting(self) -> bool:
        """Return whether more of a body is to come; on a connection that became a WebSocket's there is none."""
        open_ = self.conn.their_state is h11.SEND_BODY and not self.transport.is_closing()
        return open_ and self.transport.get_protocol() is self

    def _watch(self) -> None:
        most = self.most_bytes if self._bound is None else self._bound
        if not self._wanting():
            self._bound = None
        elif self.conn.chunk_bytes > most:
            self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a chunk is larger than {most} bytes.")
        elif self._quiet is None:
            self._quiet = self.loop.call_later(self.quiet_s, self._look)

    def _look(self) -> None:
        self._quiet = None
        if not self._wanting():
            return
        now = self.loop.time()
        answering = self.cycle.response_started and not self.cycle.response_complete
        if answering or self.flow.read_paused or self.conn.they_are_waiting_for_100_continue:
            self._heard = now
        left_s = self._heard + self.quiet_s - now
        if left_s > 0:
            self._quiet = self.loop.call_later(left_s, self._look)
        else:
            said = f"no byte of the body came within {self.quiet_s:g} s. Send it without such pauses."
            self._refuse(HTTPStatus.REQUEST_TIMEOUT, said)

    def _refuse(self, status: HTTPStatus, said: str) -> None:
        """Answer, if nothing was yet, and end the connection."""
        cycle = self.cycle
        if not cycle.response_started:
            self._say(status, said)
        self.transport.close()
        cycle.disconnected = True
        cycle.message_event.set()

    def _say(self, status: HTTPStatus, said: str) -> None:
        """Answer with a text of a known length, so that whoever reads no chunks sees it whole."""
        body = said.encode()
        head = [
            (b"content-type", b"text/plain; charset=utf-8"),
            (b"content-length", b"%d" % len(body)),
            (b"connection", b"close"),
        ]
        start = h11.Response(status_code=status, headers=head, reason=status.phrase.encode())
        for event in (start, h11.Data(data=body), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")


class QuietServer(uvicorn.Server):
    """Uvicorn that leaves signals to the process it runs in."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield
