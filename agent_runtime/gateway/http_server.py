"""An HTTP server in the caller's event loop, on TCP or a unix socket, that no client can hold up.

Used by `server` and `recording` for their ASGI applications. It is uvicorn, which leaves signals alone here, with three
timers that uvicorn lacks: for a request's head, for a client that hardly takes its answer, and for what is left
when the server stops. Bodies are the application's to bound, and `rock_env.wire.bodies` ends those that do not come.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, FlowControl

from rock_env.wire.arrivals import SETTLED, Arrivals, sip
from rock_env.wire.bodies import BodyProtocol, OneLength, QuietServer
from rock_env.wire.listening import BACKLOG, host_and_port, open_listener

__all__ = ["SETTLED", "Limits", "serving"]

_EVENTS = 128
"""Of one connection in one turn of the loop: a body may come in chunks of one byte, a hundred thousand in one read."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one client may take of the server."""

    body_bytes: int = 32 << 20
    """A request's body; an agent's whole history fits many times."""
    head_bytes: int = 64 << 10
    """A request's line and headers."""
    head_s: float = 10.0
    """Until a request's head is there, from its first byte (from the connection's start for the first)."""
    body_s: float = 60.0
    """Until a request's body is there, from its head."""
    quiet_s: float = 30.0
    """Without a byte of a body of which more is to come."""
    stalled_s: float = 60.0
    """For a client to take enough of what waits that more of its answer can be sent."""
    idle_s: float = 120.0
    """Between two requests of a connection."""
    sign_of_life_s: float = 10.0
    """A stream without an answer yet says so little apart; within the first such time an error is still an HTTP status."""
    connections: int = 4096
    """While so many are open, or requests under way, every new request gets 503."""
    stop_s: float = 5.0
    """For answers under way when the server stops; then they are cut."""


class _Paced(OneLength):
    """Gives out `left` events, then none until it is told how many more."""

    left = _EVENTS

    def next_event(self) -> Any:
        if not self.left:
            return h11.NEED_DATA
        self.left -= 1
        return super().next_event()


class _Flow(FlowControl):
    """Reads no more from a connection while events of it wait."""

    held = False

    def resume_reading(self) -> None:
        if not self.held:
            super().resume_reading()


class _Protocol(BodyProtocol):
    """One connection. `limits` is set by the subclass that a server makes, `arrivals` where strangers are bounded."""

    limits: Limits
    arrivals: Arrivals | None = None
    conn: _Paced
    flow: _Flow

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.app_state = {SETTLED: self._settle}
        if self.arrivals is not None:
            sip(transport)
        self.conn = _Paced(h11.SERVER, self.limits.head_bytes)
        self.quiet_s, self.most_bytes = self.limits.quiet_s, self.limits.body_bytes
        self.flow = _Flow(transport)
        self._stalled: asyncio.TimerHandle | None = None
        self.head_s = self.limits.head_s
        self.await_head()

    def end(self) -> None:
        """Cut a stranger off."""
        self.transport.abort()

    def _settle(self) -> None:
        if self.arrivals is not None:
            self.arrivals.settled(self)
            sip(self.transport, ends=True)

    def handle_events(self) -> None:
        if self.flow.held:
            return
        self.conn.left = _EVENTS
        super().handle_events()
        if not self.conn.left and not self.transport.is_closing():
            self.flow.pause_reading()
            self.flow.held = True
            self.loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        self.flow.held = False
        if self.transport.is_closing():
            return
        if self.cycle is None or len(self.cycle.body) <= HIGH_WATER_LIMIT:
            self.flow.resume_reading()
        self.handle_events()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stalled = self.loop.call_later(self.limits.stalled_s, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    def connection_lost(self, exc: Exception | None) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
        self._settle()
        super().connection_lost(exc)


@asynccontextmanager
async def serving(
    app: Any,
    address: str | Path = "127.0.0.1:0",
    *,
    limits: Limits | None = None,
    keyed: bool = False,
) -> AsyncIterator[str]:
    """Serve `app` for the time of the block; yield its URL, or the path of its socket.

    `address` is HOST:PORT (port 0: any free one) or the `Path` of a unix socket to make. A connection of TCP to a server
    that is `keyed` is a stranger's, with little time, until the application calls what the state of its requests has as
    `SETTLED`. Raise `OSError` where it cannot listen. At the end no connection is open and no request is under way.
    """
    limits = limits or Limits()
    listener, url = _listen(address)
    limited: Any = type("_Limited", (_Protocol,), {"limits": limits})
    config = uvicorn.Config(
        app,
        http=limited,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        h11_max_incomplete_event_size=limits.head_bytes,
        timeout_keep_alive=limits.idle_s,  # type: ignore[arg-type]  # handed to call_later
        limit_concurrency=limits.connections,
        timeout_graceful_shutdown=limits.stop_s,  # type: ignore[arg-type]
    )
    config.load()
    server = QuietServer(config)
    arrivals = None
    if keyed and not isinstance(address, Path):
        arrivals = Arrivals(listener, lambda: limited(config, server.server_state, {}))
        limited.arrivals = arrivals
        arrivals.open()
    running = asyncio.ensure_future(server.serve(sockets=[] if arrivals else [listener]))
    try:
        yield url
    finally:
        if arrivals is not None:
            arrivals.close()
        server.should_exit = True
        await running
        await _cut(server)
        listener.close()
        if isinstance(address, Path):
            address.unlink(missing_ok=True)  # noqa: ASYNC240  one system call


async def _cut(server: uvicorn.Server) -> None:
    """End what a graceful stop left."""
    for connection in list(server.server_state.connections):
        connection.transport.abort()
    if left := set(server.server_state.tasks):
        for task in left:
            task.cancel()
        await asyncio.wait(left)


def _listen(address: str | Path) -> tuple[socket.socket, str]:
    try:
        if not isinstance(address, Path):
            listener = open_listener(address)
            return listener, f"http://{host_and_port(listener)}"
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listener.bind(str(address))
            listener.listen(BACKLOG)
            listener.setblocking(False)
        except OSError:
            listener.close()
            raise
    except OSError as error:
        raise OSError(
            error.errno, f"cannot listen on {address}: {error.strerror}. Choose another address or port 0."
        ) from error
    return listener, str(address)
