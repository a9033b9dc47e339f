"""Connections of the REST face: uvicorn's, which strangers cannot hold open, with a bound on their number and their time.

Made by `app`; `Gateway.admit` says who is no stranger any more.
"""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from typing import Any

import h11
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.exceptions import InvalidState

from rock_env.wire.arrivals import STRANGER_S, Arrivals, sip
from rock_env.wire.bodies import BOUND, BodyProtocol, OneLength

__all__ = ["HEAD_BYTES", "Connections", "HttpConnection", "SocketConnection", "admitted"]

HEAD_BYTES = 64 << 10
"""A request's line and headers."""
_KEY = "rock.connection"
_settled: ContextVar[Any] = ContextVar("settled", default=None)


def admitted() -> None:
    """Note that the present request has shown a token."""
    settled = _settled.get()
    if settled is not None:
        settled()


class Connections:
    """Tells, within each request, on which connection it came; the outermost layer of the application."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        connection = scope.get("state", {}).get(_KEY)
        if connection is not None:
            await connection.turn()
            _settled.set(connection.settle)
        await self._app(scope, receive, send)


class HttpConnection(BodyProtocol):
    """One connection. A head has to be there in time, whoever sends it."""

    head_s = STRANGER_S

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.conn = OneLength(h11.SERVER, HEAD_BYTES)
        self.arrivals: Arrivals
        self._stranger = True
        self._refused = False
        self._reads_on: asyncio.TimerHandle | None = None
        """A stranger is read a piece at a time, of all strangers, also while it is only waited for it to be gone."""

    def end(self) -> None:
        """Cut a stranger off."""
        self.transport.abort()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.app_state = {_KEY: self, BOUND: self.bound}
        sip(transport)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._stranger:
            self.transport.pause_reading()
            if self._reads_on is None:
                self._reads_on = self.arrivals.at_turn(self._read_on)

    def _read_on(self) -> None:
        self._reads_on = None
        if self.left or not self.flow.read_paused:
            self.transport.resume_reading()

    async def turn(self) -> None:
        """Wait for the turn of a request, where the one before showed no token."""
        if not self._stranger:
            return
        if self._refused:
            await self.arrivals.turn()
        self._refused = True

    def settle(self) -> None:
        """Be no stranger's connection any more."""
        if self._stranger:
            self._stranger = False
            self.arrivals.settled(self)
            sip(self.transport, ends=True)
            if self._reads_on is not None:
                self._reads_on.cancel()
                self._read_on()

    def connection_lost(self, exc: Exception | None) -> None:
        self.settle()
        super().connection_lost(exc)


class SocketConnection(WebSocketsSansIOProtocol):
    """A WebSocket. One that its peer closes at the moment is no reason for a server not to stop."""

    def shutdown(self) -> None:
        try:
            super().shutdown()
        except InvalidState:
            self.transport.close()
