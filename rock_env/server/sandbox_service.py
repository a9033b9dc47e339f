"""The gRPC face of the SandboxService: lifecycle calls for the core, commands with streamed output, files.

Called by `server/app.py`. It keeps no state: the core has the sandboxes. What it does not offer yet answers
UNIMPLEMENTED and says what to use instead.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any

import grpc

from rock_env.backends.guest_link import Command, OutputChunk
from rock_env.errors import InvalidArgument, RockError, Unimplemented
from rock_env.proto.v1 import sandbox_pb2 as pb
from rock_env.sandbox_wire import (
    exit_message,
    file_message,
    info_message,
    sandbox_spec,
    sandbox_state,
    seconds,
)
from rock_env.server.grpc import fail
from rock_env.server.sandbox_core import LIVE, SandboxCore, SandboxWish
from rock_env.store.base import Query

__all__ = ["SERVICE", "add_sandbox_service"]

SERVICE = pb.DESCRIPTOR.services_by_name["SandboxService"].full_name
MAX_WRITE_BYTES = 64 << 20
_CHUNK_BYTES = 1 << 20
_DEFAULT_EXEC_S = 60.0
_PAGE = 1000
_LEAST_IDLE_S = 0.1
"""A sandbox in use looks at its idle deadline, and stores the next one, once per this time at most."""
_INSTEAD = {
    "Snapshot": "create a sandbox and repeat the commands",
    "Fork": "create a sandbox and repeat the commands",
    "OpenSession": "run each command with Exec, or `bash` with its commands on stdin",
    "Session": "run `bash` with Exec and write its commands to stdin",
    "CloseSession": "close the Exec stream",
    "StartProcess": "keep an Exec stream open",
    "ProcessLogs": "keep an Exec stream open",
    "SignalProcess": "send `signal` on the Exec stream",
    "Upload": "call WriteFile for each file",
    "Download": "call ListFiles, then ReadFile for each file",
    "WatchFiles": "poll ListFiles",
    "Expose": "run the client of the port with Exec",
}

Context = Any  # grpc.aio.ServicerContext is generic only in the stubs
Act = Callable[[Any, Context], Awaitable[Any]]


class _SandboxService:
    def __init__(self, core: SandboxCore) -> None:
        self._core = core

    async def create(self, request: pb.CreateSandboxRequest, _: Context) -> pb.SandboxInfo:
        if request.snapshot_id:
            raise Unimplemented(
                "Create does not take snapshot_id yet; leave it out and repeat the commands in the new sandbox"
            )
        # Deterministic bytes: a retry must compare equal whatever order its maps were filled in.
        wanted = request.SerializeToString(deterministic=True)
        idle_timeout_s = (
            seconds(request.idle_timeout, "idle_timeout") if request.HasField("idle_timeout") else None
        )
        if idle_timeout_s is not None and idle_timeout_s < _LEAST_IDLE_S:
            raise InvalidArgument(
                f"idle_timeout must be at least {_LEAST_IDLE_S:g} s, got {idle_timeout_s:g}"
            )
        wish = SandboxWish(
            spec=sandbox_spec(request.spec),
            environment=request.environment,
            labels=dict(request.labels),
            lease_s=seconds(request.lease, "lease") if request.HasField("lease") else None,
            idle_timeout_s=idle_timeout_s,
            key=request.idempotency_key,
            digest=hashlib.sha256(wanted).hexdigest(),
        )
        return info_message(await self._core.create(wish))

    async def get(self, request: pb.GetSandboxRequest, _: Context) -> pb.SandboxInfo:
        return info_message(await self._core.get(request.id))

    async def list(self, request: pb.ListSandboxesRequest, _: Context) -> pb.ListSandboxesResponse:
        size = min(request.page_size or _PAGE, _PAGE)
        query = Query(
            states=frozenset(map(sandbox_state, request.states)) or LIVE,
            labels=dict(request.labels),
            environment=request.environment,
            after_id=request.page_token,
            limit=size + 1,
        )
        found = await self._core.find(query)
        token = found[size - 1].id if len(found) > size else ""
        return pb.ListSandboxesResponse(sandboxes=map(info_message, found[:size]), next_page_token=token)

    async def watch(self, request: pb.WatchSandboxesRequest, context: Context) -> None:
        changes = self._core.watch(dict(request.labels), after_revision=request.after_revision)
        async with aclosing(changes):
            async for record in changes:
                await context.write(info_message(record))

    async def delete(self, request: pb.DeleteSandboxRequest, _: Context) -> pb.SandboxInfo:
        return info_message(await self._core.delete(request.id))

    async def renew(self, request: pb.RenewSandboxRequest, _: Context) -> pb.SandboxInfo:
        return info_message(await self._core.renew(request.id, seconds(request.lease, "lease")))

    async def pause(self, request: pb.PauseSandboxRequest, _: Context) -> pb.SandboxInfo:
        return info_message(await self._core.pause(request.id))

    async def resume(self, request: pb.ResumeSandboxRequest, _: Context) -> pb.SandboxInfo:
        return info_message(await self._core.resume(request.id))

    async def exec(self, requests: AsyncIterator[pb.ExecRequest], context: Context) -> None:
        first = await anext(aiter(requests), None)
        if first is None or first.WhichOneof("kind") != "start":
            raise InvalidArgument("the first message of Exec must be `start`")
        start = first.start
        if start.idempotency_key or start.stdout_offset or start.stderr_offset:
            raise Unimplemented(
                "Exec cannot be resumed by key and offset yet; leave idempotency_key and offsets out"
            )
        async with self._core.using(start.sandbox_id) as box:
            command = box.start(
                list(start.argv),
                env=dict(start.env),
                cwd=start.cwd or None,
                timeout_s=start.timeout.ToTimedelta().total_seconds() or _DEFAULT_EXEC_S,
                max_output_bytes=start.max_output_bytes or _CHUNK_BYTES,
            )
            await self._stream(command, requests, context)

    async def _stream(
        self, command: Command, requests: AsyncIterator[pb.ExecRequest], context: Context
    ) -> None:
        sent = {"stdout": 0, "stderr": 0}
        async with command, asyncio.TaskGroup() as group:
            pump = group.create_task(_pump(requests, command))
            async for event in command.events():
                if isinstance(event, OutputChunk):
                    chunk = pb.OutputChunk(offset=sent[event.stream], data=event.data)
                    sent[event.stream] += len(event.data)
                    await context.write(pb.ExecEvent(**{event.stream: chunk}))
                else:
                    await context.write(pb.ExecEvent(exit=exit_message(event)))
            pump.cancel()

    async def read_file(self, request: pb.ReadFileRequest, context: Context) -> None:
        offset, left = request.offset, request.length or None
        async with self._core.using(request.sandbox_id) as box:
            while left != 0:
                size = _CHUNK_BYTES if left is None else min(left, _CHUNK_BYTES)
                data = await box.read_range(request.path, offset=offset, length=size)
                if data:
                    await context.write(pb.FileChunk(data=data))
                if len(data) < size:
                    return
                offset += size
                left = None if left is None else left - size

    async def write_file(self, requests: AsyncIterator[pb.WriteFileRequest], _: Context) -> pb.FileStat:
        content = bytearray()
        first: pb.WriteFileRequest | None = None
        async for request in requests:
            first = first or request
            content += request.data
            if len(content) > MAX_WRITE_BYTES:
                raise InvalidArgument(
                    f"WriteFile takes at most {MAX_WRITE_BYTES} bytes; append the rest in more calls"
                )
        if first is None:
            raise InvalidArgument("WriteFile needs at least one message, with sandbox_id and path")
        if first.append and first.idempotency_key:
            raise Unimplemented("an append cannot be made exactly-once yet; write the whole file instead")
        async with self._core.using(first.sandbox_id) as box:
            await box.write_file(first.path, bytes(content), mode=first.mode or 0o644, append=first.append)
            return file_message(await box.stat(first.path))

    async def stat(self, request: pb.StatRequest, _: Context) -> pb.FileStat:
        async with self._core.using(request.sandbox_id) as box:
            return file_message(await box.stat(request.path))

    async def list_files(self, request: pb.ListFilesRequest, _: Context) -> pb.ListFilesResponse:
        async with self._core.using(request.sandbox_id) as box:
            entries = await box.list_files(request.path or ".", recursive=request.recursive)
        return pb.ListFilesResponse(files=map(file_message, entries))


async def _pump(requests: AsyncIterator[pb.ExecRequest], command: Command) -> None:
    """Pass the caller's later messages on; when it sends no more, the command's input ends."""
    async for request in requests:
        kind = request.WhichOneof("kind")
        if kind == "stdin":
            command.write_stdin(request.stdin)
        elif kind == "signal" and 1 <= request.signal <= 64:
            command.kill(request.signal)
        elif kind == "stdin_closed":
            command.close_stdin()
        else:
            raise InvalidArgument(
                f"after `start`, Exec takes stdin, stdin_closed or a signal from 1 to 64, got {kind!r}"
            )
    command.close_stdin()


def _guarded(name: str, act: Act) -> Act:
    async def handle(request: Any, context: Context) -> Any:
        try:
            return await act(request, context)
        except RockError as error:
            await fail(context, error)
        except ExceptionGroup as group:  # Exec's two halves; the first error is the cause
            cause = group.exceptions[0]
            if not isinstance(cause, RockError):
                raise
            await fail(context, cause)

    handle.__name__ = name
    return handle


def _unoffered(name: str) -> Act:
    async def act(_: Any, __: Context) -> None:
        raise Unimplemented(f"SandboxService.{name} is not offered by this server yet; {_INSTEAD[name]}")

    return act


def add_sandbox_service(server: grpc.aio.Server, core: SandboxCore) -> None:
    """Register the SandboxService on a server that has not started yet. `core` stays the caller's to close."""
    service = _SandboxService(core)
    acts: dict[str, Act] = {
        "Create": service.create,
        "Get": service.get,
        "List": service.list,
        "Watch": service.watch,
        "Delete": service.delete,
        "Pause": service.pause,
        "Resume": service.resume,
        "Renew": service.renew,
        "Exec": service.exec,
        "ReadFile": service.read_file,
        "WriteFile": service.write_file,
        "Stat": service.stat,
        "ListFiles": service.list_files,
    }
    shapes = {
        (False, False): grpc.unary_unary_rpc_method_handler,
        (False, True): grpc.unary_stream_rpc_method_handler,
        (True, False): grpc.stream_unary_rpc_method_handler,
        (True, True): grpc.stream_stream_rpc_method_handler,
    }
    handlers = {}
    for method in pb.DESCRIPTOR.services_by_name["SandboxService"].methods:
        act = acts.get(method.name) or _unoffered(method.name)
        request = getattr(pb, method.input_type.name)
        handlers[method.name] = shapes[method.client_streaming, method.server_streaming](
            _guarded(method.name, act),
            request_deserializer=request.FromString,
            response_serializer=lambda message: bytes(message.SerializeToString()),
        )
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
