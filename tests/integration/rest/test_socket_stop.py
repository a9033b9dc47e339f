"""A server that stops while the peer of a WebSocket closes it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from websockets.asyncio.client import connect
from websockets.frames import Frame

from rock_env.server.options import ServerOptions
from rock_env.server.rest.app import serving
from rock_env.server.rest.connections import Connections, SocketConnection, admitted

WITHIN_S = 20.0


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Accept, and wait for the end."""
    admitted()
    await receive()
    await send({"type": "websocket.accept"})
    await receive()


async def test_a_socket_that_is_being_closed_does_not_keep_a_server_from_stopping(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stopped: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def stop(self: SocketConnection, event: Frame) -> None:
        try:
            self.shutdown()  # the server stops when it has heard the close, and before it answers
            stopped.set_result(None)
        except Exception as error:  # noqa: BLE001  it is what the test waits for
            stopped.set_exception(error)

    monkeypatch.setattr(SocketConnection, "handle_close", stop)
    async with (
        asyncio.timeout(WITHIN_S),
        serving(Connections(app), ServerOptions(http="127.0.0.1:0")) as url,
        connect(url.replace("http", "ws", 1)) as socket,
    ):
        await socket.close()
        await stopped
