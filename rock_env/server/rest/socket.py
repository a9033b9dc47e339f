"""Bidirectional calls over WebSocket: frames are the call's messages, each way as they come.

Used by the REST face, for the same paths as the calls' POST. A text frame holds a message as JSON; who asks for the
subprotocol `rock.v1.proto` sends and gets binary frames with serialised messages. An empty text frame means "nothing
more to say" (gRPC's half close). The server closes with 1000 when the call went well; else with 4000 + the HTTP status,
after a text frame {"error": {code, message, retry_after_s}}. Who may not call is answered by HTTP: 401 or 403.

A browser cannot set a header on a WebSocket: it may offer the subprotocol `rock.v1.bearer.<token>` instead.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
from google.protobuf.message import DecodeError
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from rock_env.errors import InvalidArgument, RockError
from rock_env.server.rest.codec import dump, json_bytes, problem, problem_body, read_body, rock_error
from rock_env.server.rest.gateway import Gateway, with_path
from rock_env.server.rest.request import BEARER, TooLarge, metadata_of
from rock_env.wire.rest_routes import Method

__all__ = ["PROTO", "socket_endpoint"]

PROTO = "rock.v1.proto"
JSON = "rock.v1.json"


def socket_endpoint(gateway: Gateway, method: Method) -> Callable[[WebSocket], Awaitable[None]]:
    """Return what serves one bidirectional call."""

    async def serve(socket: WebSocket) -> None:
        try:
            metadata = _metadata(socket)
            await gateway.admit(method, metadata)
        except RockError as error:  # an HTTP answer: who is not let in sends no frame
            await problem(error)(socket.scope, socket.receive, socket.send)
            return
        offered = socket.scope.get("subprotocols", [])
        binary = PROTO in offered
        chosen = next((name for name in (PROTO, JSON) if name in offered), None)
        await socket.accept(chosen)
        try:
            await _carry(gateway.call(method)(metadata=metadata), method, socket, binary)
        except RockError as error:
            await _refuse(socket, error)
        except grpc.aio.AioRpcError as failure:
            await _refuse(socket, rock_error(failure))
        except WebSocketDisconnect:
            return

    return serve


async def _carry(call: Any, method: Method, socket: WebSocket, binary: bool) -> None:
    pump = asyncio.ensure_future(_pump(call, method, socket, binary))
    try:
        while (message := await call.read()) is not grpc.aio.EOF:
            if binary:
                await socket.send_bytes(message.SerializeToString())
            else:
                await socket.send_text(dump(message).decode())
        await socket.close(1000)
    except asyncio.CancelledError:
        if not pump.done() or pump.cancelled():
            raise
        pump.result()  # raises what was wrong with a frame, or that the client is gone
    finally:
        call.cancel()
        pump.cancel()
        await asyncio.wait({pump})
        if not pump.cancelled():
            pump.exception()  # seen


async def _pump(call: Any, method: Method, socket: WebSocket, binary: bool) -> None:
    try:
        first = True
        async for message in _messages(method, socket, binary):
            await call.write(with_path(method, message, socket.path_params) if first else message)
            first = False
        await call.done_writing()
        while (await socket.receive())["type"] != "websocket.disconnect":
            pass  # nothing counts any more
    except (asyncio.InvalidStateError, grpc.aio.AioRpcError):
        return  # the call ended before its input did; its status says why
    except (RockError, WebSocketDisconnect):
        call.cancel()
        raise
    call.cancel()


async def _messages(method: Method, socket: WebSocket, binary: bool) -> AsyncIterator[Any]:
    while True:
        frame = await socket.receive()
        if frame["type"] == "websocket.disconnect":
            raise WebSocketDisconnect(frame.get("code", 1000))
        text, data = frame.get("text"), frame.get("bytes")
        if text == "":
            return
        if binary != (text is None):
            raise InvalidArgument(
                f"got a {'text' if text is not None else 'binary'} frame; expected "
                + ("binary ones, as the subprotocol says" if binary else f"JSON, or the subprotocol {PROTO}")
            )
        if text is not None:
            if len(text) > json_bytes(method):
                raise TooLarge(f"a frame of JSON is larger than {json_bytes(method)} bytes; send binary ones")
            yield await read_body(method, text)
            continue
        try:
            yield method.request.FromString(data)
        except DecodeError as error:
            raise InvalidArgument(f"a frame is no {method.input.name}: {error}") from None


def _metadata(socket: WebSocket) -> tuple[tuple[str, str], ...]:
    tokens = [name for name in socket.scope.get("subprotocols", []) if name.startswith(BEARER)]
    return metadata_of(socket.headers) + tuple(
        ("authorization", f"Bearer {name.removeprefix(BEARER)}") for name in tokens
    )


async def _refuse(socket: WebSocket, error: RockError) -> None:
    if socket.application_state is not WebSocketState.CONNECTED:
        return
    try:
        await socket.send_text(json.dumps({"error": problem_body(error)}))
        await socket.close(4000 + error.http)
    except (WebSocketDisconnect, RuntimeError):
        return  # the client did not wait for it
