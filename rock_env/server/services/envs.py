"""The gRPC face of the EnvService. It adds nothing to the core's meaning and keeps no state. Batch
replies leave as the bytes the workers produced.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc

from rock_env.env_workers.frames import Kind
from rock_env.errors import NotFound
from rock_env.proto.v1 import env_pb2 as pb
from rock_env.server.calls import Act, Context, guarded
from rock_env.server.envs.branches import Borrowed, Branches
from rock_env.server.envs.core import EnvServiceCore
from rock_env.wire.bulk import serialize
from rock_env.wire.envs import error_of

__all__ = ["SERVICE", "add_env_service"]

SERVICE = pb.DESCRIPTOR.services_by_name["EnvService"].full_name


def _one(core: EnvServiceCore, kind: Kind) -> Act:
    async def act(request: Any, context: Context) -> Any:
        return await core.one(kind, request, context.time_remaining())

    return guarded(act)


def _many(core: EnvServiceCore, kind: Kind) -> Callable[[Any, Context], AsyncIterator[bytes]]:
    async def act(request: Any, context: Context) -> AsyncIterator[bytes]:
        timeout_s = 0.0 if kind is Kind.CLOSE else request.item_timeout_s
        async for chunk in core.many(kind, request.items, timeout_s):
            yield chunk

    return act


def _make(core: EnvServiceCore) -> tuple[Act, Callable[[Any, Context], AsyncIterator[bytes]]]:
    async def one(request: pb.MakeRequest, context: Context) -> pb.MakeResponse:
        reply = (await core.make([request]))[0]
        error = error_of(reply)
        if error is not None:
            raise error
        return reply

    async def many(request: pb.MakeManyRequest, context: Context) -> AsyncIterator[bytes]:
        replies = await core.make(request.items)
        yield pb.MakeManyResponse(indices=range(len(replies)), items=replies).SerializeToString()

    return guarded(one), many


def _without_context(method: Callable[[Any], Awaitable[Any]]) -> Act:
    async def act(request: Any, context: Context) -> Any:
        return await method(request)

    return act


def _read_artifact(core: EnvServiceCore) -> Act:
    async def act(request: pb.ReadArtifactRequest, context: Context) -> pb.ReadArtifactResponse:
        """Return an artifact of an environment's episode. Raise `NotFound`, or `EnvLost` if its worker died."""
        hosted = core.find(request.env_id)
        if hosted.sandboxed is None:
            raise NotFound(f"{hosted.env} has no sandbox, and so no artifacts.")
        return pb.ReadArtifactResponse(content=hosted.sandboxed.artifacts.read(request.sha256))

    return guarded(act)


def add_env_service(
    server: grpc.aio.Server,
    core: EnvServiceCore,
    borrow: Callable[[str], Awaitable[Borrowed | None]] | None = None,
) -> Branches:
    """Register the EnvService on a server that has not started yet; return its checkpoints.

    `borrow` asks the other servers of a shared store for theirs.
    """
    branches = Branches(core, borrow)

    async def list_envs(request: pb.ListEnvsRequest, context: Context) -> pb.ListEnvsResponse:
        return core.list_envs()

    async def restore(request: pb.RestoreRequest, context: Context) -> pb.ResetResponse:
        return await branches.restore(request, context.time_remaining())

    make, make_many = _make(core)
    unary: dict[str, tuple[Any, Act]] = {
        "ListEnvs": (pb.ListEnvsRequest, guarded(list_envs)),
        "ListSplits": (pb.ListSplitsRequest, guarded(_without_context(core.list_splits))),
        "Make": (pb.MakeRequest, make),
        "Reset": (pb.ResetRequest, _one(core, Kind.RESET)),
        "Step": (pb.StepRequest, _one(core, Kind.STEP)),
        "Evaluate": (pb.EvaluateRequest, _one(core, Kind.EVALUATE)),
        "Close": (pb.CloseRequest, _one(core, Kind.CLOSE)),
        "ReadArtifact": (pb.ReadArtifactRequest, _read_artifact(core)),
        "Checkpoint": (pb.CheckpointRequest, guarded(_without_context(branches.checkpoint))),
        "Restore": (pb.RestoreRequest, guarded(restore)),
        "Fork": (pb.ForkRequest, guarded(_without_context(branches.fork))),
        "TakeOver": (pb.TakeOverRequest, guarded(_without_context(branches.take_over))),
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
            act, request_deserializer=request.FromString, response_serializer=serialize
        )
        for name, (request, act) in unary.items()
    }
    handlers |= {
        name: grpc.unary_stream_rpc_method_handler(act, request_deserializer=request.FromString)
        for name, (request, act) in streams.items()
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    return branches
