"""Carries HTTP requests to the server's own gRPC handlers and their answers back, whatever the call.

Used by `server/rest/app`. A request becomes the same call on a channel to this process's gRPC server, so interceptors,
tokens, deadlines, flow control and errors are those of gRPC, not a copy of them. Nothing is queued here: the next
message is read when the last one is on its way, and a client that hangs up cancels its call.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

import grpc
from starlette.requests import Request
from starlette.responses import Response

from rock_env.errors import RockError
from rock_env.server.envs.byte_room import ByteRoom
from rock_env.server.interceptors.access import AccessControl
from rock_env.server.interceptors.held import HELD
from rock_env.server.parsing import SMALL_BYTES, off_loop
from rock_env.server.rest.codec import (
    definite,
    dump,
    from_body,
    from_query,
    json_bytes,
    problem,
    read_body,
    reading,
    resume_after,
    rock_error,
    set_field,
)
from rock_env.server.rest.connections import admitted
from rock_env.server.rest.request import (
    Gone,
    answered,
    blocks,
    body,
    content_type,
    lines,
    metadata_of,
    once,
    timeout_s,
)
from rock_env.server.rest.streams import EventBlocks, RawBlocks, StreamedCall, byte_range
from rock_env.wire.rest_routes import Method, methods

__all__ = ["Gateway", "with_path", "write_all"]

NDJSON = "application/x-ndjson"
_LARGE_BYTES = 256 << 10
"""From here on JSON is written in a thread: it would hold the event loop for milliseconds."""
_ANSWERS = ByteRoom(32 << 20)
"""What is written as JSON at once."""
STAT = next(method for method in methods() if method.name == "SandboxService.Stat")
_FIRST_S = 0.25
"""How long a stream may wait for its first message before it answers 200: an error within it is an HTTP error."""

Endpoint = Callable[[Request], Awaitable[Response]]
Metadata = tuple[tuple[str, str], ...]


class Gateway:
    """Answers requests over `channel`, which leads to the server itself; `door` knows who may."""

    def __init__(self, channel: grpc.aio.Channel, door: AccessControl) -> None:
        self._channel = channel
        self._door = door
        self._calls: dict[str, Callable[..., Any]] = {}

    def call(self, method: Method) -> Callable[..., Any]:
        """Return the gRPC call of a method."""
        made = self._calls.get(method.name)
        if made is None:
            shape = f"{_shape(method.client_streaming)}_{_shape(method.server_streaming)}"
            made = self._calls[method.name] = getattr(self._channel, shape)(
                method.grpc_path,
                request_serializer=method.request.SerializeToString,
                response_deserializer=method.reply.FromString,
            )
        return made

    async def admit(self, method: Method, metadata: Metadata) -> str:
        """Return from the headers alone for which tenant a call is. Raise `Unauthenticated`, `PermissionDenied`.

        The call itself is checked once more; this is so that nothing of a stranger's body is read.
        """
        permit = await self._door.admit(method.grpc_path, metadata)
        admitted()
        return permit.tenant

    def endpoint(self, method: Method) -> Endpoint:
        """Return what answers requests for a method."""
        act = self._streamed if method.client_streaming else self._single

        async def answer(request: Request) -> Response:
            try:
                tenant = await self.admit(method, metadata_of(request.headers))
                return await act(method, request, tenant)
            except RockError as error:
                return problem(error)
            except grpc.aio.AioRpcError as failure:
                return problem(rock_error(failure), known=definite(failure))
            except Gone:
                return Response(status_code=499)

        return answer

    # -- one request

    async def _single(self, method: Method, request: Request, tenant: str) -> Response:
        with reading():
            message = await self._message(method, request, tenant)
        ask = {"metadata": metadata_of(request.headers), "timeout": timeout_s(request)}
        if not method.server_streaming:
            reply = await answered(self.call(method)(message, **ask), request)
            return Response(await _dumped(reply), media_type="application/json")
        raw = bool(method.route.raw) and "text/event-stream" not in request.headers.get("accept", "")
        headers: dict[str, str] = {}
        status, reached = 200, {}
        if raw and "range" in request.headers and "length" in method.input.fields_by_name:
            status, headers = await byte_range(self.call(STAT), message, request)
        last = request.headers.get("last-event-id")
        if last and method.route.ids:
            reached = resume_after(method.route.ids, message, last)
        call = self.call(method)(message, **ask)
        blocks = RawBlocks(method) if raw else EventBlocks(method, reached)
        return await self._stream(call, blocks, request, status=status, headers=headers)

    async def _message(self, method: Method, request: Request, tenant: str) -> Any:
        if method.takes_body:
            content_type(request, ("application/json",))
            with HELD.share(tenant) as share:
                content = await body(request, json_bytes(method), share)
                if len(content) <= SMALL_BYTES:
                    message = from_body(method, content)
                else:
                    message = await answered(asyncio.ensure_future(read_body(method, content)), request)
        else:
            message = from_query(method, request.query_params.multi_items())
        return with_path(method, message, request.path_params)

    async def _stream(
        self,
        call: Any,
        blocks: EventBlocks | RawBlocks,
        request: Request,
        *,
        pump: asyncio.Task[None] | None = None,
        status: int = 200,
        headers: Mapping[str, str] | None = None,
    ) -> Response:
        first = asyncio.ensure_future(call.read())
        streamed = StreamedCall(call, first, blocks, pump=pump, status=status, headers=headers)
        try:
            await asyncio.wait({first}, timeout=_FIRST_S)
            if first.done():
                first.result()
        except BaseException:
            wrong = streamed.wrong_input()
            streamed.end()
            if wrong is not None:
                raise wrong from None
            raise
        return streamed

    # -- a stream of requests

    async def _streamed(self, method: Method, request: Request, tenant: str) -> Response:
        call = self.call(method)(metadata=metadata_of(request.headers), timeout=timeout_s(request))
        reached: dict[str, int] = {}
        pump = asyncio.ensure_future(write_all(call, self._messages(method, request, reached, tenant)))
        if method.server_streaming:
            return await self._stream(call, EventBlocks(method, reached), request, pump=pump)
        try:
            reply = asyncio.ensure_future(_awaited(call))
            await asyncio.wait({reply, pump}, return_when=asyncio.FIRST_COMPLETED)
            if pump.done():
                pump.result()  # raises what was wrong with the body
            await asyncio.wait({reply})
            return Response(await _dumped(reply.result()), media_type="application/json")
        finally:
            pump.cancel()
            call.cancel()

    async def _messages(
        self, method: Method, request: Request, reached: dict[str, int], tenant: str
    ) -> AsyncIterator[Any]:
        kind = content_type(request, ("application/json", NDJSON) if not method.route.raw else ())
        if method.route.raw and kind != NDJSON:
            first = from_query(method, request.query_params.multi_items())
            message = with_path(method, first, request.path_params)
            if method.input.fields_by_name[method.route.raw].containing_oneof is not None:
                yield message  # what says which file, and the file's bytes, are messages of their own
                message = method.request()
            async for block in blocks(request):
                setattr(message, method.route.raw, block)
                yield message
                message = method.request()
            if message.ByteSize():
                yield message  # an empty body still says which file
            return
        started = False
        limit = json_bytes(method)
        with HELD.share(tenant) as share:
            source = lines(request, limit, share) if kind == NDJSON else once(request, limit, share)
            async for line in source:
                message = await read_body(method, line)
                if not started:
                    started = True
                    with_path(method, message, request.path_params)
                    last = request.headers.get("last-event-id")
                    if last and method.route.ids:
                        reached |= resume_after(method.route.ids, message, last)
                yield message


def _shape(streaming: bool) -> str:
    return "stream" if streaming else "unary"


async def _awaited(call: Any) -> Any:
    return await call


async def _dumped(message: Any) -> bytes:
    if message.ByteSize() > _LARGE_BYTES:
        async with _ANSWERS.taken(message.ByteSize()):
            written = await off_loop(dump, message)
        HELD.tidy_soon()
        return written
    return dump(message)


async def write_all(call: Any, messages: AsyncIterator[Any]) -> None:
    """Send all messages of a call; one that ended before them says itself why. Raise what they raise, and cancel it."""
    try:
        async for message in messages:
            await call.write(message)
        await call.done_writing()
    except (asyncio.InvalidStateError, grpc.aio.AioRpcError):
        return  # the call ended before its input did; its status says why
    except BaseException:
        call.cancel()
        raise


def with_path(method: Method, message: Any, parameters: Mapping[str, str]) -> Any:
    """Put the parameters of the path into a request and return it. Raise `InvalidArgument`."""
    for path in method.path_fields:
        parent = path.rpartition(".")[0]
        oneof = method.input.fields_by_name[parent].containing_oneof if parent else None
        if oneof is not None and message.WhichOneof(oneof.name) not in (None, parent):
            continue  # not the message that the path speaks of: the call says what it expects
        set_field(message, path, parameters[path.replace(".", "__")])
    return message
