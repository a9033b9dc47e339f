"""How a call of a service ends: the one place where an error becomes a status, below all services and interceptors."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NoReturn, TypeVar

import grpc
from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message_factory import GetMessageClass

from rock_env.errors import ResourceExhausted, RockError, of_full_disk, one_line
from rock_env.wire.bulk import serialize

__all__ = [
    "Act",
    "Context",
    "act_of",
    "add_service",
    "cut_off",
    "fail",
    "guarded",
    "patience_s",
    "rpc_handler",
    "shortened",
    "trailers",
]

_MAX_DETAIL_BYTES = 4096
"""gRPC sends the message as a header, and peers refuse more than 8 KiB of headers."""
_QUIET_S = 0.25
_DRAIN_S = 5.0
"""A failed call takes what its caller still sends, until nothing came for so long, and no longer than so long."""
_ANSWER_S = 0.5
"""What of a caller's deadline is kept for starting the sandbox and for the answer."""

Reply = TypeVar("Reply")
Context = Any  # grpc.aio.ServicerContext is generic only in the stubs
Act = Callable[[Any, Context], Awaitable[Any]]
"""Takes a request, or a stream of them, and returns the reply; a stream of replies it writes to the context."""


async def fail(context: Context, error: RockError, *, drain_s: float = _DRAIN_S) -> NoReturn:
    """Abort the call with the status, code and retry hint of `error`. Never returns.

    It first takes what the caller is still sending, for no longer than `drain_s`: a client whose write fails reports
    that, and not our answer. What comes from a full disk is told as that, in one wording.
    """
    error = of_full_disk(error) or error
    await _abort(context, grpc.StatusCode[error.grpc], error.message, trailers(error), drain_s)


def trailers(error: RockError) -> tuple[tuple[str, str], ...]:
    """Return what is told of an error beside its status and its message."""
    metadata = [("rock-error-code", error.code)]
    if error.retry_after_s is not None:
        metadata.append(("rock-retry-after-s", f"{error.retry_after_s:g}"))
    if isinstance(error, ResourceExhausted) and error.queue_position is not None:
        metadata.append(("rock-queue-position", str(error.queue_position)))
    return tuple(metadata)


async def cut_off(context: Context, message: str) -> NoReturn:
    """Abort the call as a lost connection does, but with a reason: UNAVAILABLE without a `rock-error-code`.

    The code would say that the call's own handler answered, and clients would take that as final. Never returns.
    """
    await _abort(context, grpc.StatusCode.UNAVAILABLE, message, (), _DRAIN_S)


async def _abort(
    context: Context,
    status: grpc.StatusCode,
    message: str,
    metadata: tuple[tuple[str, str], ...],
    drain_s: float,
) -> NoReturn:
    if drain_s:
        await _drain(context, drain_s)
    await context.abort(status, shortened(message), trailing_metadata=metadata)

    raise AssertionError("gRPC went on with an aborted call")


def shortened(text: str) -> str:
    """Return a message as one line, as much as fits.

    gRPC writes what is not printable ASCII as %XX for each byte of UTF-8.
    """
    text, left = one_line(text), _MAX_DETAIL_BYTES
    for at, char in enumerate(text):
        left -= 1 if " " <= char <= "~" and char != "%" else 3 * len(char.encode(errors="replace"))
        if left < 0:
            return text[:at]
    return text


async def _drain(context: Context, within_s: float) -> None:
    try:
        async with asyncio.timeout(within_s):
            message = None
            while message is not grpc.aio.EOF:
                async with asyncio.timeout(_QUIET_S):
                    message = await context.read()
    except (TimeoutError, grpc.aio.UsageError):
        return  # it does not end, or the call has


def guarded(act: Callable[[Any, Context], Awaitable[Reply]]) -> Callable[[Any, Context], Awaitable[Reply]]:
    """Return `act` failing its call with the status of what it raises."""

    async def handle(request: Any, context: Context) -> Reply:
        try:
            return await act(request, context)
        except RockError as error:
            await fail(context, error)
        except (
            ExceptionGroup
        ) as group:  # the halves of a call in both directions; the first error is the cause
            cause = group.exceptions[0]
            if not isinstance(cause, RockError):
                raise
            await fail(context, cause)

    return handle


def patience_s(context: Context) -> float | None:
    """Return how long a call may wait for a place: so that the refusal, or the sandbox, still arrives in time."""
    left_s = context.time_remaining()
    return None if left_s is None else max(left_s - max(_ANSWER_S, 0.1 * left_s), 0.0)


def act_of(handler: Any) -> Callable[[Any, Context], Any]:
    """Return the function of a gRPC handler, whichever its shape."""
    act: Callable[[Any, Context], Any] = (
        handler.unary_unary or handler.unary_stream or handler.stream_unary or handler.stream_stream
    )
    return act


def rpc_handler(
    streams: tuple[bool, bool],
    act: Callable[[Any, Context], Any],
    deserialize: Callable[[bytes], Any] | None,
    serialize: Callable[[Any], bytes] | None,
) -> Any:
    """Return a gRPC handler for calls whose request, and whose reply, is a stream or is not."""
    request, reply = ("stream" if each else "unary" for each in streams)
    return getattr(grpc, f"{request}_{reply}_rpc_method_handler")(act, deserialize, serialize)


def add_service(
    server: grpc.aio.Server,
    service: ServiceDescriptor,
    acts: Mapping[str, Act],
    *,
    readers: Mapping[str, Callable[[bytes], Any]] | None = None,
) -> None:
    """Register the handlers of a service, by method, on a server that has not started yet.

    `readers` unpack the requests of methods for which protobuf would copy too much.
    """
    handlers = {
        method.name: rpc_handler(
            (method.client_streaming, method.server_streaming),
            guarded(acts[method.name]),
            (readers or {}).get(method.name, GetMessageClass(method.input_type).FromString),
            serialize,
        )
        for method in service.methods
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service.full_name, handlers),))
