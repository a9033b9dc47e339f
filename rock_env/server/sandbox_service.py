"""The gRPC SandboxService over one backend: boxes by id, commands with streamed output, files.

Called by `server/app.py`. Keeps the records of its boxes in memory; the boxes end with the backend. What it does
not offer yet answers UNIMPLEMENTED and says what to use instead.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import grpc

from rock_env.auth import current_tenant
from rock_env.backends.base import Backend
from rock_env.backends.guest_link import Command, FileEntry, OutputChunk
from rock_env.errors import FailedPrecondition, InvalidArgument, NotFound, RockError, Unimplemented
from rock_env.proto.v1 import sandbox_pb2 as pb
from rock_env.sandbox import Sandbox
from rock_env.sandbox_wire import exit_message, file_message, info_message, sandbox_spec, sandbox_state
from rock_env.server.grpc import fail
from rock_env.spec import SandboxSpec
from rock_env.state import SandboxInfo, SandboxState, StateChange

__all__ = ["SERVICE", "add_sandbox_service"]

log = logging.getLogger(__name__)

SERVICE = pb.DESCRIPTOR.services_by_name["SandboxService"].full_name
MAX_WRITE_BYTES = 64 << 20
_CHUNK_BYTES = 1 << 20
_DEFAULT_EXEC_S = 60.0
_PAGE = 1000
_REMEMBERED = 1000
"""How many deleted sandboxes are still known by id."""
_INSTEAD = {
    "Watch": "poll Get",
    "Pause": "leave the sandbox idle",
    "Resume": "sandboxes are never paused",
    "Renew": "set spec.lifetime on Create",
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


@runtime_checkable
class ServedSandbox(Sandbox, Protocol):
    """What this service needs of a box beyond `Sandbox`."""

    @property
    def failure(self) -> str: ...
    def start(
        self,
        argv: Any,
        *,
        env: Any = None,
        cwd: Any = None,
        timeout_s: float = ...,
        max_output_bytes: int = ...,
    ) -> Command: ...
    async def read_range(self, path: str, *, offset: int, length: int) -> bytes: ...
    async def write_file(
        self, path: str, content: bytes, *, mode: int = 0o644, append: bool = False
    ) -> None: ...
    async def stat(self, path: str) -> FileEntry: ...
    async def list_files(self, path: str, *, recursive: bool = False) -> list[FileEntry]: ...


@dataclass(slots=True)
class _Held:
    info: SandboxInfo
    key: tuple[str, str] = ("", "")
    """The tenant and idempotency key of its Create."""
    box: ServedSandbox | None = None


@dataclass(frozen=True, slots=True)
class _Creation:
    request: bytes
    task: asyncio.Task[SandboxInfo]


class _SandboxService:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._held: dict[str, _Held] = {}
        self._created: dict[tuple[str, str], _Creation] = {}
        """By tenant and key."""
        self._tasks: set[asyncio.Task[Any]] = set()

    async def create(self, request: pb.CreateSandboxRequest, _: Context) -> pb.SandboxInfo:
        if request.snapshot_id or request.HasField("lease"):
            raise Unimplemented(
                "Create takes neither snapshot_id nor lease yet; set spec.lifetime to bound its age"
            )
        # Deterministic bytes: a retry must compare equal whatever order its maps were filled in.
        wanted = request.SerializeToString(deterministic=True)
        key = (current_tenant(), request.idempotency_key)
        creation = self._created.get(key) if key[1] else None
        if creation is None:
            # A task of the service's own: a caller who hangs up and retries finds the same box.
            act = self._create(sandbox_spec(request.spec), labels=dict(request.labels), key=key)
            creation = _Creation(wanted, self._spawn(act))
            if key[1]:
                self._created[key] = creation
        if creation.request != wanted:
            raise FailedPrecondition(
                f"idempotency key {key[1]!r} was used for another Create; take a new one"
            )
        try:
            info = await asyncio.shield(creation.task)
        except RockError:
            self._created.pop(key, None)  # nothing was made, so the key is free for another try
            raise
        return info_message(self._current(self._held.get(info.id) or _Held(info)))

    def _spawn(self, act: Any) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(act)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _create(
        self, spec: SandboxSpec, *, labels: dict[str, str], key: tuple[str, str]
    ) -> SandboxInfo:
        sandbox_id = f"sb-{secrets.token_hex(8)}"
        now, name = time.time(), type(self._backend).__name__.removesuffix("Backend").lower()
        held = _Held(
            SandboxInfo(
                id=sandbox_id,
                spec_digest=spec.digest,
                backend=name,
                owner=key[0],
                labels=labels,
                history=(StateChange(SandboxState.STARTING, "asked for", now),),
            ),
            key,
        )
        box = await self._backend.create(spec, sandbox_id=sandbox_id)
        if not isinstance(box, ServedSandbox):
            await box.close()
            raise Unimplemented(f"the {name} backend's sandboxes can only be used through an environment")
        held.info = held.info.moved(SandboxState.RUNNING, at=time.time())
        held.box = box
        self._held[sandbox_id] = held
        loop = asyncio.get_running_loop()
        loop.call_later(spec.lifetime_s, lambda: self._spawn(self._destroy(held, "its lifetime ended")))
        return held.info

    async def _destroy(self, held: _Held, reason: str) -> None:
        if held.info.state in (SandboxState.RUNNING, SandboxState.FAILED):
            held.info = held.info.moved(SandboxState.DELETING, at=time.time(), reason=reason)
        if held.box is None:
            return
        await held.box.close()  # a second caller waits here for the same end
        if held.info.state is SandboxState.DELETING:
            held.info = held.info.moved(SandboxState.DELETED, at=time.time(), reason=reason)
            held.box = None
            gone = [sandbox_id for sandbox_id, other in self._held.items() if other.box is None]
            for sandbox_id in gone[:-_REMEMBERED]:
                self._created.pop(self._held.pop(sandbox_id).key, None)

    def _current(self, held: _Held) -> SandboxInfo:
        if held.box is not None and held.box.failure and held.info.state is SandboxState.RUNNING:
            held.info = held.info.moved(SandboxState.FAILED, at=time.time(), reason=held.box.failure)
        return held.info

    def _find(self, sandbox_id: str) -> _Held:
        held = self._held.get(sandbox_id)
        if held is None or held.info.owner != current_tenant():
            raise NotFound(f"no sandbox {sandbox_id!r} on this server; List shows those there are")
        return held

    def _box(self, sandbox_id: str) -> ServedSandbox:
        held = self._find(sandbox_id)
        if held.box is None or held.info.state is SandboxState.DELETING:
            raise NotFound(f"sandbox {sandbox_id!r} is {held.info.state} ({held.info.reason})")
        return held.box

    async def get(self, request: pb.GetSandboxRequest, _: Context) -> pb.SandboxInfo:
        return info_message(self._current(self._find(request.id)))

    async def list(self, request: pb.ListSandboxesRequest, _: Context) -> pb.ListSandboxesResponse:
        states = {sandbox_state(number) for number in request.states} or set(SandboxState) - {
            SandboxState.DELETED
        }
        wanted, tenant = request.labels.items(), current_tenant()
        matching = [
            info
            for sandbox_id in sorted(self._held)
            if sandbox_id > request.page_token
            and (info := self._current(self._held[sandbox_id])).owner == tenant
            and info.state in states
            and all(info.labels.get(name) == value for name, value in wanted)
        ]
        size = min(request.page_size or _PAGE, _PAGE)
        page = matching[:size]
        token = page[-1].id if len(matching) > size else ""
        return pb.ListSandboxesResponse(sandboxes=map(info_message, page), next_page_token=token)

    async def delete(self, request: pb.DeleteSandboxRequest, _: Context) -> pb.SandboxInfo:
        held = self._find(request.id)
        await asyncio.shield(self._spawn(self._destroy(held, "deleted by its user")))
        return info_message(held.info)

    async def exec(self, requests: AsyncIterator[pb.ExecRequest], context: Context) -> None:
        first = await anext(aiter(requests), None)
        if first is None or first.WhichOneof("kind") != "start":
            raise InvalidArgument("the first message of Exec must be `start`")
        start = first.start
        if start.idempotency_key or start.stdout_offset or start.stderr_offset:
            raise Unimplemented(
                "Exec cannot be resumed by key and offset yet; leave idempotency_key and offsets out"
            )
        command = self._box(start.sandbox_id).start(
            list(start.argv),
            env=dict(start.env),
            cwd=start.cwd or None,
            timeout_s=start.timeout.ToTimedelta().total_seconds() or _DEFAULT_EXEC_S,
            max_output_bytes=start.max_output_bytes or _CHUNK_BYTES,
        )
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
        box, offset, left = self._box(request.sandbox_id), request.offset, request.length or None
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
        box = self._box(first.sandbox_id)
        await box.write_file(first.path, bytes(content), mode=first.mode or 0o644, append=first.append)
        return file_message(await box.stat(first.path))

    async def stat(self, request: pb.StatRequest, _: Context) -> pb.FileStat:
        return file_message(await self._box(request.sandbox_id).stat(request.path))

    async def list_files(self, request: pb.ListFilesRequest, _: Context) -> pb.ListFilesResponse:
        entries = await self._box(request.sandbox_id).list_files(
            request.path or ".", recursive=request.recursive
        )
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


def add_sandbox_service(server: grpc.aio.Server, backend: Backend) -> None:
    """Register the SandboxService on a server that has not started yet. `backend` stays the caller's to close."""
    service = _SandboxService(backend)
    acts: dict[str, Act] = {
        "Create": service.create,
        "Get": service.get,
        "List": service.list,
        "Delete": service.delete,
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
