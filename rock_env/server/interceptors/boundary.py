"""The edge between gRPC and the handlers of all services: what cannot be read, and what nobody expected, has a name.

Installed by `server/app.py` as the innermost interceptor, so nothing of a stranger's message is read before the door.
A message that is none, or holds too much, becomes INVALID_ARGUMENT, and a bug INTERNAL with the code `internal` and a
traceback in the log; gRPC would call both UNKNOWN and quote the exception. A message that is large, or of many parts, is
parsed off the event loop. It changes no call that ends as its handler meant it to.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError, Message

from rock_env.errors import InvalidArgument, RockError, of_full_disk
from rock_env.security.auth import current_tenant
from rock_env.server.calls import act_of, fail, rpc_handler
from rock_env.server.interceptors.held import HELD, LARGE_BYTES, Share
from rock_env.server.interceptors.sizes import check_sizes
from rock_env.server.parsing import check_counts, is_short_work, off_loop
from rock_env.wire.rest_routes import methods

__all__ = ["BoundaryInterceptor"]

log = logging.getLogger(__name__)

Handler = Any  # grpc.RpcMethodHandler is generic only in the stubs
Context = Any
Details = Any

_INPUTS = {method.grpc_path: method.input for method in methods()}
Read = Callable[[bytes], Any]


@dataclass(slots=True)
class _Unread:
    """Stands for a large message, one of many parts, or bytes that are none: gRPC lets no exception through."""

    data: bytes
    parse: Read

    async def read(self) -> Any:
        data, self.data = self.data, b""
        return await off_loop(self.parse, data)


class BoundaryInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[misc]  # grpc is not typed
    """Gives every call exactly one status that its caller can act upon."""

    def __init__(self) -> None:
        self._wrapped: dict[str, tuple[Handler, Handler]] = {}

    async def intercept_service(
        self, continuation: Callable[[Details], Awaitable[Handler]], handler_call_details: Details
    ) -> Handler:
        """Return the method's handler inside the boundary; None where there is no such method."""
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        name = handler_call_details.method
        known = self._wrapped.get(name)
        if known is None or known[0] is not handler:
            known = self._wrapped[name] = (handler, _bounded(name, handler))
        return known[1]


def _bounded(name: str, handler: Handler) -> Handler:
    act = act_of(handler)
    wrap = _generator if inspect.isasyncgenfunction(act) else _coroutine
    bounded = wrap(name, act, handler.request_streaming)
    streams = handler.request_streaming, handler.response_streaming
    read = _reader(handler.request_deserializer, _INPUTS.get(name))
    return rpc_handler(streams, bounded, read, handler.response_serializer)


def _reader(deserialize: Read | None, message: Descriptor | None) -> Read | None:
    if deserialize is None:
        return None

    def parse(data: bytes) -> Any:
        if message is not None:
            check_counts(data, message)
        try:
            return _checked(deserialize(data))
        except DecodeError as error:
            said = str(error).removesuffix(".")
            raise InvalidArgument(
                f"malformed request: {said}. Do both ends use the same .proto files?"
            ) from None

    def read(data: bytes) -> Any:
        if len(data) > LARGE_BYTES or (message is not None and not is_short_work(data, message)):
            return _Unread(data, parse)
        try:
            return deserialize(data)
        except DecodeError:
            return _Unread(data, parse)  # which says so where it can be answered

    return read


async def _readable(request: Any, streaming: bool, share: Share) -> Any:
    """Return the request. Raise `InvalidArgument` where it cannot be read; a stream does so when it comes to it."""
    if streaming:
        return _each_readable(request, share)
    return await _whole(request, share)


async def _each_readable(requests: AsyncIterator[Any], share: Share) -> AsyncIterator[Any]:
    async for request in requests:
        yield await _whole(request, share)


async def _whole(request: Any, share: Share) -> Any:
    """Return a message that was read and holds no text that is too long. Raise also `ResourceExhausted`."""
    if isinstance(request, _Unread):
        share.hold(len(request.data))
        return await request.read()
    share.hold(0)
    return _checked(request)


def _checked(found: Any) -> Any:
    if isinstance(found, Message):
        check_sizes(found)
    return found


def _coroutine(name: str, act: Callable[[Any, Context], Awaitable[Any]], streaming: bool) -> Any:
    async def bounded(request: Any, context: Context) -> Any:
        try:
            with HELD.share(current_tenant()) as share:
                return await act(await _readable(request, streaming, share), context)
        except (asyncio.CancelledError, grpc.aio.AbortError):
            raise
        except Exception as error:  # noqa: BLE001  named boundary: rpc handler
            await _fail(name, context, error)

    return bounded


def _generator(name: str, act: Callable[[Any, Context], AsyncIterator[Any]], streaming: bool) -> Any:
    async def bounded(request: Any, context: Context) -> AsyncIterator[Any]:
        try:
            with HELD.share(current_tenant()) as share:
                async for reply in act(await _readable(request, streaming, share), context):
                    yield reply
        except (asyncio.CancelledError, grpc.aio.AbortError):
            raise
        except Exception as error:  # noqa: BLE001  named boundary: rpc handler
            await _fail(name, context, error)

    return bounded


async def _fail(name: str, context: Context, error: Exception) -> None:
    """End the call with what the error means. Never returns, but where nobody is there to be told."""
    cause: BaseException = error
    while isinstance(
        cause, BaseExceptionGroup
    ):  # the halves of a call in both directions; the first is the cause
        cause = cause.exceptions[0]
    if isinstance(cause, grpc.aio.AbortError):
        raise cause
    told = cause if isinstance(cause, RockError) else of_full_disk(cause)
    if told is not None:
        await fail(context, told)
    if context.done():
        return  # its caller left while it was answered
    log.error("bug in the handler of %s", name, exc_info=error)
    await fail(context, RockError("internal error of the ROCK server, see its log. Please report it."))
