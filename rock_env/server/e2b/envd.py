"""E2B's in-box daemon (envd) over our calls: files, the file system and commands of one sandbox.

Mounted by `mount` at /e2b beside the control plane. Which sandbox is meant stands in the header E2b-Sandbox-Id
and who may is said by X-Access-Token, the sandbox's own token. What envd offers beyond this answers 501 and names it.
"""

from __future__ import annotations

import asyncio
import json
import stat
import zlib
from base64 import b64decode
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from rock_env.arguments import shown
from rock_env.errors import (
    FailedPrecondition,
    InfraError,
    InvalidArgument,
    NotFound,
    RockError,
    Unauthenticated,
    Unimplemented,
)
from rock_env.proto.v1 import sandbox_pb2 as pb
from rock_env.server.e2b.control import Boxes, guarded
from rock_env.server.e2b.files import parts
from rock_env.server.e2b.process import Processes, exec_start
from rock_env.server.e2b.wire import (
    AlreadyExists,
    connect_problem,
    control_problem,
    end_frame,
    frame,
    frames,
    json_body,
    token_of,
)
from rock_env.server.interceptors.held import HELD
from rock_env.server.parsing import off_loop, whole_number
from rock_env.server.rest.codec import rock_error
from rock_env.server.rest.gateway import write_all
from rock_env.server.rest.request import blocks, body

__all__ = ["MAX_FORM_BYTES", "envd_routes"]

_GONE = "The sandbox was not found"
"""E2B's SDKs look for these words: a box that is gone, which to its own token is one that never was."""
_THERE = 17
"""How the script of MakeDir says that the folder exists."""
_MAKE_DIR = f'[ -d "$1" ] && exit {_THERE}; exec mkdir -p -- "$1"'
_SIGNALS = {"SIGNAL_SIGTERM": 15, "SIGNAL_SIGKILL": 9}
_CALL_S = 60
MAX_FORM_BYTES = 64 << 20
_GZIP = 31
"""What zlib takes for data with a header and a sum of gzip's."""

Rpc = Callable[[str, dict[str, Any], Request], Awaitable[dict[str, Any] | bytes]]


def envd_routes(boxes: Boxes, processes: Processes) -> list[BaseRoute]:
    """Return the routes of the daemon."""
    envd = _Envd(boxes, processes)

    async def admit(request: Request) -> str:
        return await boxes.admit("Stat", token_of(request.headers))

    unary: dict[str, Rpc] = {
        "filesystem.Filesystem/Stat": envd.stat,
        "filesystem.Filesystem/ListDir": envd.list_dir,
        "filesystem.Filesystem/MakeDir": envd.make_dir,
        "filesystem.Filesystem/Remove": envd.remove,
        "filesystem.Filesystem/Move": envd.move,
        "process.Process/List": envd.list_processes,
        "process.Process/SendInput": envd.send_input,
        "process.Process/SendSignal": envd.send_signal,
        "process.Process/CloseStdin": envd.close_stdin,
    }
    streams = {"process.Process/Start": envd.start, "process.Process/Connect": envd.connect}
    routes: list[BaseRoute] = [
        Route("/health", guarded(envd.health, admit, _problem)),
        Route("/files", guarded(envd.read, admit, _problem), methods=["GET"]),
        Route("/files", guarded(envd.write, admit, _problem), methods=["POST"]),
        Route(
            "/process.Process/StreamInput",
            guarded(envd.stream_input, admit, _connect_problem),
            methods=["POST"],
        ),
    ]
    for name, act in unary.items():
        routes.append(Route(f"/{name}", guarded(_unary(act), admit, _connect_problem), methods=["POST"]))
    for name, stream in streams.items():
        routes.append(Route(f"/{name}", guarded(_stream(stream), admit, _connect_problem), methods=["POST"]))
    return routes


def _problem(error: RockError) -> Response:
    return _gone(error) or control_problem(error)


def _connect_problem(error: RockError) -> Response:
    return _gone(error) or connect_problem(error)


def _gone(error: RockError) -> Response | None:
    if not isinstance(error, Unauthenticated):
        return None
    return JSONResponse({"code": 502, "message": f"{_GONE}: {error.message}"}, 502)


def _unary(act: Rpc) -> Callable[[Request], Awaitable[Response]]:
    async def handle(request: Request) -> Response:
        _check_user(request)
        answer = await act(_sandbox_id(request), await json_body(request), request)
        if isinstance(answer, bytes):
            return Response(answer, media_type="application/json")
        return JSONResponse(answer)

    return handle


def _stream(act: Callable[..., Awaitable[AsyncIterator[dict[str, Any]]]]) -> Any:
    async def handle(request: Request) -> Response:
        _check_user(request)
        asked = [message async for message in frames(request)]
        if len(asked) != 1:
            raise InvalidArgument(f"expected one message in the body, got {len(asked)}")
        events = await act(_sandbox_id(request), asked[0], request)

        async def content() -> AsyncIterator[bytes]:
            try:
                async for event in events:
                    yield frame(event)
                yield end_frame()
            except RockError as error:
                yield end_frame(error)

        return StreamingResponse(content(), media_type="application/connect+json")

    return handle


def _sandbox_id(request: Request) -> str:
    found = request.headers.get("e2b-sandbox-id", "")
    if not found:
        raise InvalidArgument(
            "no header E2b-Sandbox-Id: set E2B_SANDBOX_URL and use an SDK of version 2 or later"
        )
    return found


def _check_user(request: Request) -> None:
    if "authorization" in request.headers or request.query_params.get("username"):
        raise Unimplemented("a ROCK sandbox has one user; leave `user` out")


def _path(asked: dict[str, Any], name: str = "path") -> str:
    value = asked.get(name)
    if not isinstance(value, str) or not value:
        raise InvalidArgument(f"{name} must be a path, got {value!r}")
    return value


class _Envd:
    def __init__(self, boxes: Boxes, processes: Processes) -> None:
        self._boxes = boxes
        self._processes = processes

    # -- files

    async def health(self, request: Request) -> Response:
        try:
            await self._admit(_sandbox_id(request), request)
        except grpc.aio.AioRpcError as failure:
            if not isinstance(rock_error(failure), NotFound):
                raise
            return JSONResponse({"code": 502, "message": _GONE}, 502)
        return Response(status_code=204)

    async def read(self, request: Request) -> Response:
        _check_user(request)
        path = request.query_params.get("path", "")
        ask = pb.ReadFileRequest(sandbox_id=_sandbox_id(request), path=path)
        call = self._boxes.call("ReadFile")(ask, metadata=token_of(request.headers))
        first = await call.read()

        async def content() -> AsyncIterator[bytes]:
            chunk = first
            try:
                while chunk is not grpc.aio.EOF:
                    yield chunk.data
                    chunk = await call.read()
            finally:
                call.cancel()

        return StreamingResponse(content(), media_type="application/octet-stream")

    async def write(self, request: Request) -> Response:
        _check_user(request)
        path = request.query_params.get("path", "")
        if request.headers.get("content-type", "").startswith("multipart/form-data"):
            with HELD.share(request.state.tenant) as share:
                content = await body(request, MAX_FORM_BYTES, share)
                uploads = await off_loop(parts, request.headers["content-type"], content)
                written = [await self._write(request, path or name, _one(data)) for name, data in uploads]
        else:
            written = [await self._write(request, path, _plain(request))]
        return JSONResponse(written)

    async def _write(self, request: Request, path: str, content: AsyncIterator[bytes]) -> dict[str, Any]:
        if not path:
            raise InvalidArgument("path must not be empty")

        async def messages() -> AsyncIterator[pb.WriteFileRequest]:
            yield pb.WriteFileRequest(sandbox_id=_sandbox_id(request), path=path, more=True)
            async for block in content:
                yield pb.WriteFileRequest(data=block, more=True)
            yield pb.WriteFileRequest()

        call = self._boxes.call("WriteFile")(metadata=token_of(request.headers))
        await write_all(call, messages())  # gRPC would swallow what is wrong with the body
        await call
        return {"path": path, "name": path.rpartition("/")[2], "type": "file"}

    async def stat(self, sandbox_id: str, asked: dict[str, Any], request: Request) -> dict[str, Any]:
        ask = pb.StatRequest(sandbox_id=sandbox_id, path=_path(asked))
        entry = await self._boxes.call("Stat")(ask, metadata=token_of(request.headers))
        return {"entry": _entry(entry, ask.path)}

    async def list_dir(self, sandbox_id: str, asked: dict[str, Any], request: Request) -> bytes:
        path, depth = _path(asked), asked.get("depth") or 1
        if not isinstance(depth, int) or depth < 1:
            raise InvalidArgument(f"depth must be a whole number from 1, got {shown(depth)}")
        ask = pb.ListFilesRequest(sandbox_id=sandbox_id, path=path, recursive=depth > 1)
        found = await self._boxes.call("ListFiles")(ask, metadata=token_of(request.headers))
        return await off_loop(_entries, found, path.rstrip("/"), depth)

    async def make_dir(self, sandbox_id: str, asked: dict[str, Any], request: Request) -> dict[str, Any]:
        path = _path(asked)
        code = await self._run(sandbox_id, ["/bin/sh", "-c", _MAKE_DIR, "mkdir", path], request, (0, _THERE))
        if code == _THERE:
            raise AlreadyExists(f"folder {path!r} exists already")
        return await self.stat(sandbox_id, asked, request)

    async def remove(self, sandbox_id: str, asked: dict[str, Any], request: Request) -> dict[str, Any]:
        await self._run(sandbox_id, ["rm", "-rf", "--", _path(asked)], request)
        return {}

    async def move(self, sandbox_id: str, asked: dict[str, Any], request: Request) -> dict[str, Any]:
        source, destination = _path(asked, "source"), _path(asked, "destination")
        await self.stat(sandbox_id, {"path": source}, request)
        await self._run(sandbox_id, ["mv", "--", source, destination], request)
        return await self.stat(sandbox_id, {"path": destination}, request)

    # -- commands

    async def start(
        self, sandbox_id: str, asked: dict[str, Any], request: Request
    ) -> AsyncIterator[dict[str, Any]]:
        if asked.get("pty"):
            raise Unimplemented("E2B's pty has no counterpart here; use commands.run")
        config = asked.get("process")
        if not isinstance(config, dict):
            raise InvalidArgument("process must be an object")
        timeout_s = _milliseconds(request, "connect-timeout-ms")
        start = exec_start(sandbox_id, config, timeout_s, stdin=bool(asked.get("stdin", True)))
        await self._admit(sandbox_id, request)
        process = self._processes.new(sandbox_id, config, asked.get("tag"))
        call = self._boxes.call("Exec")(metadata=token_of(request.headers))
        try:
            await process.begin(call, start)
        except BaseException:
            call.cancel()
            raise
        events = process.events(_keepalive_s(request))
        first = await anext(events)  # listens from here on
        self._processes.keep(process)
        return _resumed(first, events)

    async def connect(
        self, sandbox_id: str, asked: dict[str, Any], request: Request
    ) -> AsyncIterator[dict[str, Any]]:
        await self._admit(sandbox_id, request)
        return self._processes.find(sandbox_id, asked.get("process")).events(_keepalive_s(request))

    async def list_processes(self, sandbox_id: str, _: dict[str, Any], request: Request) -> dict[str, Any]:
        await self._admit(sandbox_id, request)
        return {
            "processes": [
                {"pid": it.pid, "config": it.config, **({"tag": it.tag} if it.tag else {})}
                for it in self._processes.of(sandbox_id)
            ]
        }

    async def send_input(self, sandbox_id: str, asked: dict[str, Any], request: Request) -> dict[str, Any]:
        await self._admit(sandbox_id, request)
        process = self._processes.find(sandbox_id, asked.get("process"))
        await process.send(pb.ExecRequest(stdin=_input(asked.get("input"))))
        return {}

    async def stream_input(self, request: Request) -> Response:
        sandbox_id = _sandbox_id(request)
        await self._admit(sandbox_id, request)
        process = None
        async for message in frames(request):
            if "start" in message:
                process = self._processes.find(sandbox_id, (message["start"] or {}).get("process"))
            elif "data" in message:
                if process is None:
                    raise InvalidArgument("the first message must be start")
                await process.send(pb.ExecRequest(stdin=_input((message["data"] or {}).get("input"))))
        return Response(frame({}) + end_frame(), media_type="application/connect+json")

    async def send_signal(self, sandbox_id: str, asked: dict[str, Any], request: Request) -> dict[str, Any]:
        await self._admit(sandbox_id, request)
        number = _SIGNALS.get(str(asked.get("signal")))
        if number is None:
            raise InvalidArgument(f"unknown signal {asked.get('signal')!r}. Known: {', '.join(_SIGNALS)}")
        await self._processes.find(sandbox_id, asked.get("process")).send(pb.ExecRequest(signal=number))
        return {}

    async def close_stdin(self, sandbox_id: str, asked: dict[str, Any], request: Request) -> dict[str, Any]:
        await self._admit(sandbox_id, request)
        process = self._processes.find(sandbox_id, asked.get("process"))
        await process.send(pb.ExecRequest(stdin_closed=True))
        return {}

    # -- what they share

    async def _admit(self, sandbox_id: str, request: Request) -> None:
        """Let the server decide whether this caller may use the box, and whether it can be used."""
        await self._boxes.call("Stat")(
            pb.StatRequest(sandbox_id=sandbox_id, path="."), metadata=token_of(request.headers)
        )

    async def _run(
        self, sandbox_id: str, argv: list[str], request: Request, fine: tuple[int, ...] = (0,)
    ) -> int:
        start = pb.ExecStart(sandbox_id=sandbox_id, argv=argv)
        start.timeout.seconds = _CALL_S
        said = bytearray()
        call = self._boxes.call("Exec")(
            iter([pb.ExecRequest(start=start)]), metadata=token_of(request.headers)
        )
        end = pb.ExecExit(infra_error="the command's stream ended before the command")
        async for event in call:
            said += event.stderr.data
            if event.HasField("exit"):
                end = event.exit
        if end.infra_error:
            raise InfraError(end.infra_error)
        if not end.HasField("exit_code") or end.exit_code not in fine:
            raise FailedPrecondition(said.decode(errors="replace").strip() or f"{argv[0]} failed: {end}")
        return int(end.exit_code)


async def _resumed(
    first: dict[str, Any], events: AsyncIterator[dict[str, Any]]
) -> AsyncIterator[dict[str, Any]]:
    yield first
    async for event in events:
        yield event


async def _one(data: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(data), 1 << 20):
        yield data[start : start + (1 << 20)]


async def _plain(request: Request) -> AsyncIterator[bytes]:
    encoding = request.headers.get("content-encoding", "identity")
    if encoding not in ("identity", "gzip"):
        raise InvalidArgument(f"content-encoding {encoding!r} is not known; expected gzip or none")
    content = blocks(request)
    async for block in content if encoding == "identity" else _unpacked(content):
        yield block


async def _unpacked(packed: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield what gzip data holds, of one member or several. Raise `InvalidArgument` for what is none, or is torn."""
    member = zlib.decompressobj(_GZIP)
    async for block in packed:
        while block:
            if member.eof:
                member = zlib.decompressobj(_GZIP)
            try:
                plain = member.decompress(block, 1 << 20)  # a small body may unpack to a large one
            except zlib.error as error:
                raise InvalidArgument(
                    f"content-encoding is gzip, but the body is no gzip data ({error}); nothing was written"
                ) from None
            block = member.unused_data if member.eof else member.unconsumed_tail
            if plain:
                yield plain
            await asyncio.sleep(0)
    if not member.eof:
        raise InvalidArgument("the gzip data of the body ends before its end mark; nothing was written")


def _input(given: Any) -> bytes:
    text = given.get("stdin") if isinstance(given, dict) else None
    if not isinstance(text, str):
        raise Unimplemented("input takes stdin; a pty has no counterpart here")
    try:
        return b64decode(text, validate=True)
    except ValueError as error:
        raise InvalidArgument(f"stdin is no base64: {error}") from None


def _entries(found: pb.ListFilesResponse, base: str, depth: int) -> bytes:
    within = [entry for entry in found.files if entry.path.count("/") < depth]
    entries = [_entry(entry, f"{base}/{entry.path}") for entry in within]
    return json.dumps({"entries": entries}, ensure_ascii=False).encode()


def _entry(entry: pb.FileStat, path: str) -> dict[str, Any]:
    link = {"symlinkTarget": entry.symlink_target} if entry.symlink_target else {}
    kind = stat.S_IFDIR if entry.directory else stat.S_IFREG
    return {
        "name": path.rstrip("/").rpartition("/")[2],
        "type": "FILE_TYPE_DIRECTORY" if entry.directory else "FILE_TYPE_FILE",
        "path": path,
        "size": str(entry.size),
        "mode": entry.mode,
        "permissions": stat.filemode(kind | entry.mode),
        "modifiedTime": entry.modified_at.ToJsonString(),
        **({"type": "FILE_TYPE_SYMLINK"} if link else {}),
        **link,
    }


def _milliseconds(request: Request, name: str) -> float:
    """Return a header's milliseconds as seconds; 0 without it."""
    text = request.headers.get(name, "0")
    return whole_number(text, f"header {name}, in milliseconds,", 0, 10**14) / 1000


def _keepalive_s(request: Request) -> float:
    text = request.headers.get("keepalive-ping-interval", "")
    try:
        return float(whole_number(text, "header keepalive-ping-interval", 1, 3599))
    except InvalidArgument:
        return 50.0
