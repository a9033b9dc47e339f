"""WebSockets into a sandbox: messages both ways as they come, and how each side closed.

Used by the proxy. The box is asked first, so a client is only accepted where somebody listens who accepts it.
"""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.websockets import WebSocket, WebSocketDisconnect
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus
from websockets.typing import Subprotocol

from rock_env.errors import Unavailable
from rock_env.server.rest.codec import MAX_FRAME_BYTES
from rock_env.server.rest.dial import Dialling
from rock_env.server.rest.request import BEARER

__all__ = ["forward_socket"]

_OPEN_S = 10.0
_OWN = ("sec-websocket-", "host")
"""Headers of the handshake that each connection makes for itself."""
_SENDABLE = {*range(1000, 1004), *range(1007, 1012), *range(3000, 5000)}


async def forward_socket(
    dialling: Dialling, path: str, headers: list[tuple[str, str]], asgi: tuple[Any, Any, Any]
) -> None:
    """Connect the client's WebSocket with one in the box. Raise what `Dialling` raises, and `Unavailable`."""
    client = WebSocket(*asgi)
    given = client.scope.get("subprotocols", [])
    offered = [Subprotocol(name) for name in given if not name.lower().startswith(BEARER)]
    await client.receive()  # websocket.connect
    async with dialling.as_socket() as sock:
        try:
            box = await connect(
                f"ws://127.0.0.1:{dialling.port}{path}",
                sock=sock,
                subprotocols=offered or None,
                additional_headers=[(name, value) for name, value in headers if not name.startswith(_OWN)],
                user_agent_header=None,
                compression=None,
                max_size=MAX_FRAME_BYTES,
                max_queue=2,
                ping_timeout=None,
                open_timeout=_OPEN_S,
                close_timeout=1.0,
                proxy=None,
            )
        except InvalidStatus as refused:
            raise Unavailable(
                f"port {dialling.port} of the sandbox takes no WebSocket here: {refused.response.status_code}"
            ) from refused
        except (InvalidHandshake, OSError, TimeoutError) as error:
            raise Unavailable(f"port {dialling.port} of the sandbox takes no WebSocket: {error}") from error
        async with box:
            await client.accept(box.subprotocol)
            await _both(client, box)


async def _both(client: WebSocket, box: ClientConnection) -> None:
    pumps = {asyncio.ensure_future(_into(client, box)), asyncio.ensure_future(_out_of(client, box))}
    try:
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for pump in pumps:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)


async def _into(client: WebSocket, box: ClientConnection) -> None:
    try:
        while (frame := await client.receive())["type"] != "websocket.disconnect":
            data = frame.get("bytes")
            await box.send(data if data is not None else frame["text"])
        code = frame.get("code") or 1000
        await box.close(code if code in _SENDABLE else 1000, frame.get("reason") or "")
    except ConnectionClosed:
        return  # the other pump says so


async def _out_of(client: WebSocket, box: ClientConnection) -> None:
    try:
        async for message in box:
            if isinstance(message, str):
                await client.send_text(message)
            else:
                await client.send_bytes(message)
    except ConnectionClosed:
        pass  # its code is told below
    except WebSocketDisconnect:
        return
    code = box.close_code or 1011
    await client.close(code if code in _SENDABLE else 1011, box.close_reason or "")
