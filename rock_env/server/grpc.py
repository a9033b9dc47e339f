"""The gRPC face of the EnvService: one handler per call, one place where an error becomes a status.

Called by `server/app.py`. It adds nothing to the core's meaning and keeps no state. Batch replies leave as the
bytes the workers produced.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc

from rock_env.errors import RockError
from rock_env.guest.frames import Kind
from rock_env.proto.v1 import env_pb2 as pb
from rock_env.server.core import EnvServiceCore
from rock_env.wire import error_of

__all__ = ["SERVICE", "add_env_service", "fail"]

log = logging.getLogger(__name__)

SERVICE = pb.DESCRIPTOR.services_by_name["EnvService"].full_name
_MAX_DETAIL_CHARS = 2000
"""gRPC sends the message as a header, and peers refuse more than 8 KiB of headers."""

Context = Any  # grpc.aio.ServicerContext is generic only in the stubs
Unary = Callable[[Any, Context], Awaitable[Any]]


async def fail(context: Context, error: RockError) -> None:
    """Abort the call with the status, code and retry hint of `error`. Never returns."""
    metadata = [("rock-error-code", error.code)]
    if error.retry_after_s is not None:
        metadata.append(("rock-retry-after-s", f"{error.retry_after_s:g}"))
    status = grpc.StatusCode[error.grpc]
    await context.abort(status, error.message[:_MAX_DETAIL_CHARS], trailing_metadata=tuple(metadata))


def _unary(act: Unary) -> Unary:
    async def handle(request: Any, context: Context) -> Any:
        try:
            return await act(request, context)
        except RockError as error:
            await fail(context, error)
        except (asyncio.CancelledError, grpc.aio.AbortError):
            raise
        except Exception:  # named boundary: rpc handler
            log.exception("bug in an rpc handler request=%s", type(request).__name__)
            await fail(
                context, RockError("internal error of the ROCK server, see its log. Please report it.")
            )

    return handle


def _one(core: EnvServiceCore, kind: Kind) -> Unary:
    async def act(request: Any, context: Context) -> Any:
        return await core.one(kind, request, context.time_remaining())

    return _unary(act)


def _many(core: EnvServiceCore, kind: Kind) -> Callable[[Any, Context], AsyncIterator[bytes]]:
    async def act(request: Any, context: Context) -> AsyncIterator[bytes]:
        timeout_s = 0.0 if kind is Kind.CLOSE else request.item_timeout_s
        async for chunk in core.many(kind, request.items, timeout_s):
            yield chunk

    return act


def _make(core: EnvServiceCore) -> tuple[Unary, Callable[[Any, Context], AsyncIterator[bytes]]]:
    async def one(request: pb.MakeRequest, context: Context) -> pb.MakeResponse:
        reply = (await core.make([request]))[0]
        error = error_of(reply)
        if error is not None:
            raise error
        return reply

    async def many(request: pb.MakeManyRequest, context: Context) -> AsyncIterator[bytes]:
        replies = await core.make(request.items)
        yield pb.MakeManyResponse(indices=range(len(replies)), items=replies).SerializeToString()

    return _unary(one), many


def add_env_service(server: grpc.aio.Server, core: EnvServiceCore) -> None:
    """Register the EnvService on a server that has not started yet."""

    async def list_envs(request: pb.ListEnvsRequest, context: Context) -> pb.ListEnvsResponse:
        return core.list_envs()

    async def list_splits(request: pb.ListSplitsRequest, context: Context) -> pb.ListSplitsResponse:
        return core.list_splits(request)

    async def checkpoint(request: pb.CheckpointRequest, context: Context) -> pb.CheckpointResponse:
        return await core.branches.checkpoint(request)

    async def restore(request: pb.RestoreRequest, context: Context) -> pb.ResetResponse:
        return await core.branches.restore(request, context.time_remaining())

    async def fork(request: pb.ForkRequest, context: Context) -> pb.ForkResponse:
        return await core.branches.fork(request)

    make, make_many = _make(core)
    unary: dict[str, tuple[Any, Unary]] = {
        "ListEnvs": (pb.ListEnvsRequest, _unary(list_envs)),
        "ListSplits": (pb.ListSplitsRequest, _unary(list_splits)),
        "Make": (pb.MakeRequest, make),
        "Reset": (pb.ResetRequest, _one(core, Kind.RESET)),
        "Step": (pb.StepRequest, _one(core, Kind.STEP)),
        "Evaluate": (pb.EvaluateRequest, _one(core, Kind.EVALUATE)),
        "Close": (pb.CloseRequest, _one(core, Kind.CLOSE)),
        "Checkpoint": (pb.CheckpointRequest, _unary(checkpoint)),
        "Restore": (pb.RestoreRequest, _unary(restore)),
        "Fork": (pb.ForkRequest, _unary(fork)),
    }
    streams: dict[str, tuple[Any, Callable[[Any, Context], AsyncIterator[bytes]]]] = {
        "MakeMany": (pb.MakeManyRequest, make_many),
        "ResetMany": (pb.ResetManyRequest, _many(core, Kind.RESET)),
        "StepMany": (pb.StepManyRequest, _many(core, Kind.STEP)),
        "EvaluateMany": (pb.EvaluateManyRequest, _many(core, Kind.EVALUATE)),
        "CloseMany": (pb.CloseManyRequest, _many(core, Kind.CLOSE)),
    }
    handlers = {
        name: grpc.unary_unary_rpc_method_handler(
            act, request_deserializer=request.FromString, response_serializer=_serialize
        )
        for name, (request, act) in unary.items()
    }
    handlers |= {
        name: grpc.unary_stream_rpc_method_handler(act, request_deserializer=request.FromString)
        for name, (request, act) in streams.items()
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))


def _serialize(message: Any) -> bytes:
    return bytes(message.SerializeToString())
